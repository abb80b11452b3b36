// delta = rowsum(gout * out) - glse of every query: what the gradients of its scores have in
// common.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/core/divisor.h"
#include "cuda/core/dtype.cuh"

namespace jaxsparse {

struct AttentionDeltaParams {
  const void *gout, *out;  // [batch, q_len, heads, depth]
  const float* glse;       // [batch, heads, q_len]; or nullptr
  float* delta;            // the same
  Divisor heads, q_len;
  int rows;  // batch * q_len * heads
};

inline constexpr int kDeltaThreads = 256;

// Floor: one read of gout and out. Eight elements a thread; the threads of a row lie in one warp.
template <typename T, int Depth>
__global__ void __launch_bounds__(kDeltaThreads)
    AttentionDeltaKernel(const __grid_constant__ AttentionDeltaParams p) {
  constexpr int kLanes = Depth / 8;
  const int64_t thread = int64_t{blockIdx.x} * kDeltaThreads + threadIdx.x;
  const int64_t found = thread / kLanes;
  const int row = static_cast<int>(found < p.rows ? found : p.rows - 1);
  const int lane = threadIdx.x % kLanes;
  const int64_t at = int64_t{row} * kLanes + lane;
  const uint4 g = __ldg(static_cast<const uint4*>(p.gout) + at);
  const uint4 o = __ldg(static_cast<const uint4*>(p.out) + at);
  const uint32_t gs[4] = {g.x, g.y, g.z, g.w}, os[4] = {o.x, o.y, o.z, o.w};
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 a = DTypeTraits<T>::Unpack(gs[i]), b = DTypeTraits<T>::Unpack(os[i]);
    sum += a.x * b.x + a.y * b.y;
  }
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(~0u, sum, distance);
  }
  if (lane != 0 || found >= p.rows) return;
  int head, t;
  const int batch = p.q_len.Quotient(p.heads.Quotient(row, &head), &t);
  const int64_t target = (int64_t{batch} * p.heads.value + head) * p.q_len.value + t;
  p.delta[target] = sum - (p.glse == nullptr ? 0.0f : __ldg(p.glse + target));
}

template <typename T, int Depth>
cudaError_t LaunchAttentionDelta(const AttentionDeltaParams& p, cudaStream_t stream) {
  const int64_t blocks = (int64_t{p.rows} * (Depth / 8) + kDeltaThreads - 1) / kDeltaThreads;
  if (blocks == 0) return cudaSuccess;
  AttentionDeltaKernel<T, Depth><<<static_cast<unsigned>(blocks), kDeltaThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace jaxsparse
