// Which rows a CTA computes, and the arrays of its batch and heads.
#pragma once

#include "cuda/core/element.cuh"
#include "cuda/kernels/sparse_attention/mma/operands.cuh"

namespace jaxsparse {

struct AttentionPlace {
  int batch, head, first;

  // CTA `index` of a grid [batch, heads, tiles of `rows`]; `Last`: the last tile first, which is
  // the longest of a causal mask.
  template <bool Last>
  __device__ static AttentionPlace Of(unsigned index, int heads, int length, int rows) {
    const unsigned tiles = (length + rows - 1) / rows, list = index / tiles;
    const unsigned tile = index - list * tiles;
    return {static_cast<int>(list / heads), static_cast<int>(list % heads),
            static_cast<int>(Last ? tiles - 1 - tile : tile) * rows};
  }
};

// Head `head` of an array [batch, length, heads, depth].
template <class T>
__device__ __forceinline__ AttentionRows HeadRows(const void* array, int batch, int head,
                                                  int length, int heads, int depth) {
  const int bytes = depth * AttentionElement<T>::kBytes;
  const int64_t first = (static_cast<int64_t>(batch) * length * heads + head) * bytes;
  return {static_cast<const char*>(array) + first, static_cast<int64_t>(heads) * bytes, length,
          bytes};
}

// Rounds sums of a warp's rows, times `factor`, into rows from `row` on.
template <class T, int Columns, int Blocks>
__device__ __forceinline__ void StoreRows(const AttentionRows& to, int row, int columns,
                                          const float (&sums)[Blocks][Columns / 8][4],
                                          const float (&factor)[Blocks][2]) {
  using Storage = typename AttentionElement<T>::Storage;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < Blocks; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int at = row + i * 16 + lane / 4 + h * 8;
      if (at >= to.length) continue;
      auto* target = reinterpret_cast<Storage*>(const_cast<char*>(to.base) + at * to.pitch);
#pragma unroll
      for (int j = 0; j < Columns / 8; ++j) {
        if (j * 8 >= columns) break;
        const float pair[2] = {sums[i][j][2 * h] * factor[i][h],
                               sums[i][j][2 * h + 1] * factor[i][h]};
        simt::StoreRounded(target + j * 8 + lane % 4 * 2, pair);
      }
    }
  }
}

}  // namespace jaxsparse
