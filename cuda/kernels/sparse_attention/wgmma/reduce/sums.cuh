// The way from the sums of dq in global memory to dq.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/core/dtype.cuh"
#include "cuda/kernels/sparse_attention/wgmma/reduce/config.cuh"
#include "cuda/tile/store/quad.cuh"

namespace jaxsparse {

inline constexpr int kSumThreads = 256;

// dq = scale * sums. A warp takes one run: 16 queries, 64 elements of depth.
template <typename T, int Depth>
__global__ void __launch_bounds__(kSumThreads)
    RoundSumsKernel(const float4* sums, T* dq, int64_t runs, int q_len, int strips, int heads,
                    float scale) {
  constexpr int kParts = Depth / 64;
  const int lane = threadIdx.x % 32, quad = lane % 4;
  const int64_t step = int64_t{gridDim.x} * (kSumThreads / 32);
  int64_t run = int64_t{blockIdx.x} * (kSumThreads / 32) + threadIdx.x / 32;
  for (; run < runs; run += step) {
    float4 v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = __ldcs(sums + (run * 8 + j) * 32 + lane);
    const int64_t line = run / kParts, batch_head = line / strips;
    const int part = static_cast<int>(run % kParts), strip = static_cast<int>(line % strips);
    const int64_t batch = batch_head / heads, head = batch_head % heads;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int query = strip * kStripRows + lane / 4 + 8 * h;
      T* to = dq + ((batch * q_len + query) * heads + head) * Depth + part * 64;
#pragma unroll
      for (int j = 0; j < 8; j += 4) {
        uint32_t packed[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float4 s = v[j + i];
          packed[i] = h == 0 ? DTypeTraits<T>::Pack(s.x * scale, s.y * scale)
                             : DTypeTraits<T>::Pack(s.z * scale, s.w * scale);
        }
        TransposeQuad(packed);
        if (query >= q_len) continue;
        *reinterpret_cast<uint4*>(to + (j + quad) * 8) =
            make_uint4(packed[0], packed[1], packed[2], packed[3]);
      }
    }
  }
}

}  // namespace jaxsparse
