// The products of a gradient kernel's warpgroup, which owns 64 rows, and the way of its sums to
// memory.
#pragma once

#include "cuda/core/dtype.cuh"
#include "cuda/core/wgmma/operands.cuh"
#include "cuda/kernels/sparse_attention/wgmma/grad/config.cuh"
#include "cuda/tile/store/quad.cuh"

namespace jaxsparse {

// Starts out = (owned rows) (rows of the tile)^T over the depth.
template <class C>
__device__ __forceinline__ void StartDots(float (&out)[C::kOther / 2], uint32_t own,
                                          uint32_t tile) {
  const uint64_t a = ptx::TileDescriptor(own, 0), b = ptx::TileDescriptor(tile, 0);
  ptx::MmaTouch(out);
  ptx::MmaFence();
#pragma unroll
  for (int step = 0; step < C::kDepth / 16; ++step) {
    const int block = step / 4, within = step % 4 * 32;
    ptx::MmaShared<typename C::T, C::kOther, false, false>(
        out, a + (block * 64 * 128 + within) / 16, b + (block * C::kOther * 128 + within) / 16,
        step > 0);
  }
  ptx::MmaCommit();
}

// Starts sum += weights (rows of the tile).
template <class C>
__device__ __forceinline__ void StartSum(float (&sum)[C::kDepth / 2],
                                         uint32_t (&weights)[C::kOther / 16][4], uint32_t tile) {
  const uint64_t b = ptx::TileDescriptor(tile, C::kOther * 128);
  ptx::MmaTouch(sum);
  ptx::MmaFence();
#pragma unroll
  for (int step = 0; step < C::kOther / 16; ++step) {
    ptx::MmaRegisters<typename C::T, C::kDepth, true>(sum, weights[step], b + step * 16 * 128 / 16,
                                                      1);
  }
  ptx::MmaCommit();
}

template <class C>
__device__ __forceinline__ void PackWeights(const float (&v)[C::kOther / 2],
                                            uint32_t (&packed)[C::kOther / 16][4]) {
#pragma unroll
  for (int i = 0; i < C::kOther / 4; ++i) {
    packed[i / 4][i % 4] = DTypeTraits<typename C::T>::Pack(v[2 * i], v[2 * i + 1]);
  }
}

// Both rows of this thread, `row` and the eighth after it: 16 bytes a lane once a quad has
// exchanged its columns.
template <class C>
__device__ __forceinline__ void StoreSum(const AttentionGradParams& p,
                                         const AttentionGradItem& item, int first_row,
                                         const float (&sum)[C::kDepth / 2], float factor,
                                         void* target) {
  using T = typename C::T;
  const int quad = threadIdx.x % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = first_row + 8 * h;
    const bool stored = row < item.rows;
    const int64_t position = int64_t{item.batch} * p.own_len + item.first + row;
    T* line = static_cast<T*>(target) + (position * p.heads.value + item.head) * C::kDepth;
#pragma unroll
    for (int j = 0; j < C::kDepth / 8; j += 4) {
      uint32_t v[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int from = 4 * (j + i) + 2 * h;
        v[i] = DTypeTraits<T>::Pack(sum[from] * factor, sum[from + 1] * factor);
      }
      TransposeQuad(v);
      if (!stored) continue;
      *reinterpret_cast<uint4*>(line + (j + quad) * 8) = make_uint4(v[0], v[1], v[2], v[3]);
    }
  }
}

}  // namespace jaxsparse
