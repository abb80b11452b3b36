// What the Hopper kernels of attention's gradients take, and one call of them.
#include "cuda/kernels/sparse_attention/wgmma/grad/launch.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/core/device.h"
#include "cuda/kernels/sparse_attention/delta.h"
#include "cuda/kernels/sparse_attention/wgmma/grad/setup.h"
#include "cuda/kernels/sparse_attention/wgmma/grad/variant.h"
#include "cuda/kernels/sparse_attention/wgmma/launch.h"

namespace jaxsparse {
namespace {

constexpr int64_t kMost = INT32_MAX;

bool IsAligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <typename T>
cudaError_t LaunchDepth(const AttentionGradArgs& a, DType type, int* counters,
                        cudaStream_t stream) {
  const int processors = static_cast<int>(MultiProcessors());
  if (a.forward.depth == 64) {
    return AttentionGradVariant<T, 64>::Launch(a, type, counters, processors, stream);
  }
  return AttentionGradVariant<T, 128>::Launch(a, type, counters, processors, stream);
}

}  // namespace

const char* HopperBackwardReason(const AttentionGradArgs& a, DType type) {
  const char* const reason = HopperAttentionReason(a.forward, type);
  if (reason != nullptr) return reason;
  if (a.forward.lse == nullptr || a.delta == nullptr) return "there is no lse or no delta";
  for (const void* p : {a.gout, static_cast<const void*>(a.dq), static_cast<const void*>(a.dk),
                        static_cast<const void*>(a.dv)}) {
    if (!IsAligned(p)) return "a gradient is not aligned to 16 bytes";
  }
  const AttentionArgs& f = a.forward;
  if (AttentionGradItems(a, a.transposed, KeySide(a)) > kMost ||
      AttentionGradItems(a, f.mask, QuerySide(a)) > kMost ||
      int64_t{f.batch} * f.q_len * f.heads > kMost) {
    return "there are more than 2**31 tiles or rows of queries";
  }
  return nullptr;
}

cudaError_t PrepareHopperBackward() {
  cudaError_t (*const prepare[])() = {&AttentionGradVariant<__nv_bfloat16, 64>::Prepare,
                                      &AttentionGradVariant<__nv_bfloat16, 128>::Prepare,
                                      &AttentionGradVariant<__half, 64>::Prepare,
                                      &AttentionGradVariant<__half, 128>::Prepare};
  for (const auto each : prepare) {
    const cudaError_t status = each();
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

cudaError_t LaunchHopperBackward(const AttentionGradArgs& a, DType type, cudaStream_t stream,
                                 int* counters) {
  if (!FitsHopperBackward(a, type)) return cudaErrorInvalidValue;
  if (counters != nullptr) {
    const cudaError_t status = cudaMemsetAsync(counters, 0, 2 * sizeof(int), stream);
    if (status != cudaSuccess) return status;
  }
  const cudaError_t status = LaunchAttentionDelta(a, type, stream);
  if (status != cudaSuccess) return status;
  if (type == DType::kBF16) return LaunchDepth<__nv_bfloat16>(a, type, counters, stream);
  return LaunchDepth<__half>(a, type, counters, stream);
}

}  // namespace jaxsparse
