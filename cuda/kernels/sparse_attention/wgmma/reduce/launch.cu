// What the reducing Hopper kernel of attention's gradients takes, and one call of it.
#include "cuda/kernels/sparse_attention/wgmma/reduce/launch.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "cuda/core/device.h"
#include "cuda/core/launch.h"
#include "cuda/kernels/sparse_attention/delta.h"
#include "cuda/kernels/sparse_attention/wgmma/grad/launch.h"
#include "cuda/kernels/sparse_attention/wgmma/params.cuh"
#include "cuda/kernels/sparse_attention/wgmma/reduce/variant.h"

namespace jaxsparse {
namespace {

constexpr int kClearThreads = 256;

// 16 bytes a thread, in a loop over the grid.
__global__ void __launch_bounds__(kClearThreads) ClearSumsKernel(float4* sums, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * kClearThreads;
  for (int64_t i = int64_t{blockIdx.x} * kClearThreads + threadIdx.x; i < count; i += step) {
    sums[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
}

cudaError_t ClearSums(float* sums, int64_t bytes, cudaStream_t stream) {
  const int64_t count = bytes / static_cast<int64_t>(sizeof(float4));
  if (count == 0) return cudaSuccess;
  const auto ctas = static_cast<unsigned>(
      std::min<int64_t>(8 * int64_t{MultiProcessors()}, CeilDiv(count, kClearThreads)));
  ClearSumsKernel<<<ctas, kClearThreads, 0, stream>>>(reinterpret_cast<float4*>(sums), count);
  return cudaGetLastError();
}

template <typename T>
cudaError_t LaunchDepth(const AttentionGradArgs& a, DType type, float* sums, int* counter,
                        cudaStream_t stream) {
  const int processors = static_cast<int>(MultiProcessors());
  if (a.forward.depth == 64) {
    return AttentionReduceVariant<T, 64>::Launch(a, type, sums, counter, processors, stream);
  }
  return AttentionReduceVariant<T, 128>::Launch(a, type, sums, counter, processors, stream);
}

}  // namespace

const char* HopperReduceSizes(const AttentionArgs& a) {
  if (a.depth != a.v_depth || (a.depth != 64 && a.depth != 128)) {
    return "variant 3 takes heads of 64 and of 128";
  }
  if (a.mask.block_kv % 128 != 0) return "variant 3 takes a block_kv that is a multiple of 128";
  return nullptr;
}

const char* HopperReduceReason(const AttentionGradArgs& a, DType type) {
  const char* const reason = HopperReduceSizes(a.forward);
  return reason != nullptr ? reason : HopperBackwardReason(a, type);
}

int64_t AttentionSumBytes(const AttentionArgs& a) {
  const int64_t rows = CeilDiv(a.q_len, kStripRows) * kStripRows;
  return int64_t{a.batch} * a.heads * rows * a.depth * static_cast<int64_t>(sizeof(float));
}

cudaError_t PrepareHopperReduce() {
  cudaError_t (*const prepare[])() = {&AttentionReduceVariant<__nv_bfloat16, 64>::Prepare,
                                      &AttentionReduceVariant<__nv_bfloat16, 128>::Prepare,
                                      &AttentionReduceVariant<__half, 64>::Prepare,
                                      &AttentionReduceVariant<__half, 128>::Prepare};
  const cudaError_t cleared = PrepareKernel(&ClearSumsKernel, 0);
  if (cleared != cudaSuccess) return cleared;
  for (const auto each : prepare) {
    const cudaError_t status = each();
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

cudaError_t LaunchHopperReduce(const AttentionGradArgs& a, DType type, cudaStream_t stream,
                               float* sums, int* counter) {
  if (HopperReduceReason(a, type) != nullptr) return cudaErrorInvalidValue;
  cudaError_t status = cudaMemsetAsync(counter, 0, sizeof(int), stream);
  if (status == cudaSuccess) status = LaunchAttentionDelta(a, type, stream);
  if (status == cudaSuccess) status = ClearSums(sums, AttentionSumBytes(a.forward), stream);
  if (status != cudaSuccess) return status;
  if (type == DType::kBF16) return LaunchDepth<__nv_bfloat16>(a, type, sums, counter, stream);
  return LaunchDepth<__half>(a, type, sums, counter, stream);
}

}  // namespace jaxsparse
