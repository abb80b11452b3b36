// What the Hopper kernels of block-sparse attention take, and one call of them.
#include "cuda/kernels/sparse_attention/wgmma/launch.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>

#include "cuda/core/device.h"
#include "cuda/kernels/sparse_attention/wgmma/variant.h"

namespace jaxsparse {
namespace {

// Strips of one head's list and words of the mask are counted in 32 bits.
constexpr int64_t kMost = INT32_MAX;

bool IsAligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

bool IsShared(const AttentionArgs& a) { return a.mask.block_q % kSharedTile.rows == 0; }

template <typename T>
cudaError_t LaunchDepth(const AttentionArgs& a, const AttentionParams& p, const AttentionMaps& maps,
                        bool shared, int ctas, cudaStream_t stream) {
  if (a.depth == 64) return AttentionVariant<T, 64>::Launch(p, maps, shared, ctas, stream);
  return AttentionVariant<T, 128>::Launch(p, maps, shared, ctas, stream);
}

}  // namespace

const char* HopperAttentionReason(const AttentionArgs& a, DType type) {
  if (!OnHopper()) return "the device is not of compute capability 9.0";
  if (type == DType::kF32) return "operands are float32";
  if (a.depth != a.v_depth || (a.depth != 64 && a.depth != 128)) {
    return "the depth of q, k and v is not 64 or 128";
  }
  if (a.soft_cap != 0.0f || a.slopes != nullptr || a.bias != nullptr) {
    return "scores have a soft cap, slopes or a bias";
  }
  if (!(a.scale > 0.0f) || std::isinf(a.scale)) return "the scale is not positive";
  if (a.kv_len < 1 || a.q_len < 1) return "there are no queries or no keys";
  if (!IsAligned(a.q) || !IsAligned(a.k) || !IsAligned(a.v) || !IsAligned(a.out)) {
    return "an operand is not aligned to 16 bytes";
  }
  const AttentionMask& m = a.mask;
  if (AttentionItems(a, kOwnTile.rows) > kMost ||
      m.word_rows > kMost / (int64_t{m.block_q} * CeilDiv(m.block_kv, 32))) {
    return "the mask has more than 2**31 query tiles or words";
  }
  return nullptr;
}

cudaError_t PrepareHopperAttention() {
  cudaError_t (*const prepare[])() = {
      &AttentionVariant<__nv_bfloat16, 64>::Prepare, &AttentionVariant<__nv_bfloat16, 128>::Prepare,
      &AttentionVariant<__half, 64>::Prepare, &AttentionVariant<__half, 128>::Prepare};
  for (const auto each : prepare) {
    const cudaError_t status = each();
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

cudaError_t LaunchHopper(const AttentionArgs& a, DType type, cudaStream_t stream, int* counter) {
  if (HopperAttentionReason(a, type) != nullptr) return cudaErrorInvalidValue;
  const bool shared = IsShared(a);
  const AttentionTile& tile = shared ? kSharedTile : kOwnTile;
  const AttentionParams p = MakeAttentionParams(a, tile, counter);
  if (p.items == 0) return cudaSuccess;
  AttentionMaps maps = {};
  cudaError_t status = MakeAttentionMaps(a, type, tile, &maps);
  if (status == cudaSuccess && counter != nullptr) {
    status = cudaMemsetAsync(counter, 0, sizeof(int), stream);
  }
  if (status != cudaSuccess) return status;
  const int ctas = AttentionCtas(p, tile, MultiProcessors());
  if (type == DType::kBF16) return LaunchDepth<__nv_bfloat16>(a, p, maps, shared, ctas, stream);
  return LaunchDepth<__half>(a, p, maps, shared, ctas, stream);
}

}  // namespace jaxsparse
