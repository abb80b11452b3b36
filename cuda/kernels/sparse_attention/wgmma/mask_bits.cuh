// The keys of a masked tile that this thread's two rows attend.
#pragma once

#include "cuda/core/dtype.cuh"
#include "cuda/kernels/sparse_attention/wgmma/check.cuh"

namespace jaxsparse {

// Key `key` of a strip counts for the row `block_row` of its block of queries.
__device__ __forceinline__ uint32_t StripBits(const ListParams& m, const Strip& s, int block_row) {
  if (s.words < 0) return s.valid;
  return s.valid & (__ldg(m.words + s.words + block_row * m.row_words) >> s.shift);
}

template <int Columns>
struct KeyBits {
  uint32_t words[2][Columns / 32];

  __device__ __forceinline__ void Load(const ListParams& m, const TileInfo<Columns>& info,
                                       const int (&block_row)[2]) {
#pragma unroll
    for (int w = 0; w < Columns / 32; ++w) {
      const Strip low = info.strips[2 * w], high = info.strips[2 * w + 1];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        words[h][w] = StripBits(m, low, block_row[h]) | StripBits(m, high, block_row[h]) << 16;
      }
    }
  }

  // -inf where a row does not attend.
  __device__ __forceinline__ void Apply(float (&scores)[Columns / 2]) const {
    const int turn = threadIdx.x % 4 * 2;
#pragma unroll
    for (int w = 0; w < Columns / 32; ++w) {
      const uint32_t mine[2] = {words[0][w] >> turn, words[1][w] >> turn};
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int bit = i / 4 * 8 + i % 2;
        float& score = scores[16 * w + i];
        score = mine[i / 2 % 2] >> bit & 1 ? score : -INFINITY;
      }
    }
  }
};

// Adds NaN and Inf that were taken out of a tile of V to the rows that attend them. `values`: V of
// this batch and head, `stride` elements from one key to the next.
template <class C>
__device__ __forceinline__ void AddNonfinite(float (&out)[C::kVDepth / 2], const ListParams& m,
                                             const typename C::Info& info,
                                             const int (&block_row)[2], const typename C::T* values,
                                             int64_t stride) {
  using T = typename C::T;
#pragma unroll 1
  for (int w = 0; w < C::kKv / 32; ++w) {
    uint32_t rows = info.nonfinite[w];
#pragma unroll 1
    for (; rows != 0; rows &= rows - 1) {
      const int row = 32 * w + __ffs(static_cast<int>(rows)) - 1;
      const Strip strip = info.strips[row / kStripRows];
      bool attends[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        attends[h] = StripBits(m, strip, block_row[h]) >> row % kStripRows & 1;
      }
      const T* line = values + (strip.start + row % kStripRows) * stride + threadIdx.x % 4 * 2;
#pragma unroll
      for (int j = 0; j < C::kVDepth / 8; ++j) {
        const uint32_t pair = *reinterpret_cast<const uint32_t*>(line + 8 * j);
        const float2 v = DTypeTraits<T>::Unpack(pair & NonfiniteHalves<T>(pair));
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          out[4 * j + 2 * h] += attends[h] ? v.x : 0.0f;
          out[4 * j + 2 * h + 1] += attends[h] ? v.y : 0.0f;
        }
      }
    }
  }
}

}  // namespace jaxsparse
