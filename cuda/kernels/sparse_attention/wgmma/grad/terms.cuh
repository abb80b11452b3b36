// From scores to probabilities and on to the gradient of the scores. A thread holds columns 8j +
// 2*(lane%4) + e of rows lane/4 and lane/4 + 8 of its warp's 16 in index 4j + 2h + e; columns are
// queries where keys are owned, else keys.
#pragma once

#include "cuda/kernels/sparse_attention/wgmma/grad/config.cuh"
#include "cuda/kernels/sparse_attention/wgmma/softmax.cuh"

namespace jaxsparse {

// The factor 2^offset of a query's probabilities: 0 where it has attended to nothing.
__device__ __forceinline__ float LseOffset(float lse) {
  return lse == -INFINITY ? -INFINITY : lse * -1.4426950408889634f;
}

// Values of queries that go with a thread's elements: of its rows, or of a tile's columns.
template <class C>
class QueryTerms {
 public:
  __device__ __forceinline__ void Set(int h, float lse, float delta) {
    lse_[h] = lse;
    delta_[h] = delta;
  }

  // Before Offsets of a tile: what Set was given is waited for here, and not where it was loaded.
  __device__ __forceinline__ void Resolve() {
    if constexpr (!C::kKeys) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        asm volatile("" : "+f"(lse_[h]));
        offset_[h] = LseOffset(lse_[h]);
      }
    }
  }

  // Of element i of columns j.
  __device__ __forceinline__ void Offsets(const typename C::Tile& tile, int j, float (&out)[4]) {
    Pick(tile.offset, offset_, j, out);
  }
  __device__ __forceinline__ void Deltas(const typename C::Tile& tile, int j, float (&out)[4]) {
    Pick(tile.delta, delta_, j, out);
  }

 private:
  __device__ __forceinline__ static void Pick(const float* columns, const float (&rows)[2], int j,
                                              float (&out)[4]) {
    if constexpr (C::kKeys) {
      const float2 v = *reinterpret_cast<const float2*>(columns + 8 * j + threadIdx.x % 4 * 2);
      out[0] = out[2] = v.x;
      out[1] = out[3] = v.y;
    } else {
      out[0] = out[1] = rows[0];
      out[2] = out[3] = rows[1];
    }
  }

  float lse_[2] = {}, offset_[2] = {}, delta_[2] = {};
};

// Which of the four elements of columns j attend, as bits. `row`: of the thread's first row in the
// stream's tile.
template <class C>
__device__ __forceinline__ uint32_t Attending(const typename C::Tile& tile, int row, int j) {
  const int quad = threadIdx.x % 4 * 2;
  if constexpr (C::kKeys) {
    const auto v = *reinterpret_cast<const uint2*>(&tile.bits[row / 32 * C::kOther + 8 * j + quad]);
    const uint32_t even = v.x >> row % 32, odd = v.y >> row % 32;
    return (even & 1) | (odd & 1) << 1 | (even >> 8 & 1) << 2 | (odd >> 8 & 1) << 3;
  } else {
    const uint32_t* at = &tile.bits[row * C::kWords + j / 4];
    const int shift = j % 4 * 8 + quad;
    return (at[0] >> shift & 3) | (at[8 * C::kWords] >> shift & 3) << 2;
  }
}

// 0 where a query does not attend, also in place of NaN.
template <class C>
__device__ __forceinline__ void KeepAttending(float (&v)[C::kOther / 2],
                                              const typename C::Tile& tile, int row) {
#pragma unroll
  for (int j = 0; j < C::kOther / 8; ++j) {
    const uint32_t attending = Attending<C>(tile, row, j);
#pragma unroll
    for (int i = 0; i < 4; ++i) v[4 * j + i] = attending >> i & 1 ? v[4 * j + i] : 0.0f;
  }
}

template <class C>
__device__ __forceinline__ void Probabilities(float (&scores)[C::kOther / 2], float scale_log2,
                                              QueryTerms<C>& terms, const typename C::Tile& tile) {
#pragma unroll
  for (int j = 0; j < C::kOther / 8; ++j) {
    float offset[4];
    terms.Offsets(tile, j, offset);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[4 * j + i] = Exp2(fmaf(scores[4 * j + i], scale_log2, offset[i]));
    }
  }
}

// probs * (dots - delta), in place of probs.
template <class C>
__device__ __forceinline__ void ScoreGradients(float (&probs)[C::kOther / 2],
                                               const float (&dots)[C::kOther / 2],
                                               QueryTerms<C>& terms, const typename C::Tile& tile) {
#pragma unroll
  for (int j = 0; j < C::kOther / 8; ++j) {
    float delta[4];
    terms.Deltas(tile, j, delta);
#pragma unroll
    for (int i = 0; i < 4; ++i) probs[4 * j + i] *= dots[4 * j + i] - delta[i];
  }
}

}  // namespace jaxsparse
