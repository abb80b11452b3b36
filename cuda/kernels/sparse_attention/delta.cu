// delta = rowsum(gout * out) - glse, what every query's dP is measured from.
#include "cuda/kernels/sparse_attention/delta.h"

#include <algorithm>

#include "cuda/core/element.cuh"
#include "cuda/core/launch.h"

namespace jaxsparse {
namespace {

constexpr int kWarps = 8;

// A warp a row: [batch, q_len, heads] in that order.
template <class T>
__global__ void __launch_bounds__(32 * kWarps)
    AttentionDeltaKernel(const __grid_constant__ AttentionGradArgs g) {
  const AttentionArgs& a = g.forward;
  const int lane = threadIdx.x % 32;
  const int64_t rows = static_cast<int64_t>(a.batch) * a.q_len * a.heads;
  int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  for (; row < rows; row += static_cast<int64_t>(gridDim.x) * kWarps) {
    const T* gout = static_cast<const T*>(g.gout) + row * a.v_depth;
    const T* out = static_cast<const T*>(a.out) + row * a.v_depth;
    float sum = 0.0f;
    for (int i = 2 * lane; i < a.v_depth; i += 64) {
      float left[2], right[2];
      simt::LoadFloats(gout + i, left);
      simt::LoadFloats(out + i, right);
      sum += left[0] * right[0] + left[1] * right[1];
    }
#pragma unroll
    for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, other);
    if (lane != 0) continue;
    const int64_t query = row / a.heads, batch = query / a.q_len;
    const int64_t at = (batch * a.heads + row % a.heads) * a.q_len + query % a.q_len;
    g.delta[at] = sum - (g.glse == nullptr ? 0.0f : g.glse[at]);
  }
}

}  // namespace

cudaError_t PrepareAttentionDelta() {
  for (const cudaError_t status : {PrepareKernel(&AttentionDeltaKernel<float>, 0),
                                   PrepareKernel(&AttentionDeltaKernel<__nv_bfloat16>, 0),
                                   PrepareKernel(&AttentionDeltaKernel<__half>, 0)}) {
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

cudaError_t LaunchAttentionDelta(const AttentionGradArgs& g, DType dtype, cudaStream_t stream) {
  const AttentionArgs& a = g.forward;
  const int64_t rows = static_cast<int64_t>(a.batch) * a.q_len * a.heads;
  const auto ctas = static_cast<unsigned>(std::min<int64_t>(CeilDiv(rows, kWarps), 1 << 20));
  switch (dtype) {
    case DType::kF32:
      AttentionDeltaKernel<float><<<ctas, 32 * kWarps, 0, stream>>>(g);
      break;
    case DType::kBF16:
      AttentionDeltaKernel<__nv_bfloat16><<<ctas, 32 * kWarps, 0, stream>>>(g);
      break;
    case DType::kF16:
      AttentionDeltaKernel<__half><<<ctas, 32 * kWarps, 0, stream>>>(g);
      break;
  }
  return cudaGetLastError();
}

}  // namespace jaxsparse
