// OnlineSoftmax: the running maximum and sum of a warp's rows, and what becomes of a tile of
// products.
#pragma once

#include "cuda/kernels/sparse_attention/mma/bits.cuh"
#include "cuda/kernels/sparse_attention/mma/score.cuh"

namespace jaxsparse {

// Of the four lanes that hold a row.
__device__ __forceinline__ float RowMost(float v) {
  v = fmaxf(v, __shfl_xor_sync(0xFFFFFFFFu, v, 1));
  return fmaxf(v, __shfl_xor_sync(0xFFFFFFFFu, v, 2));
}
__device__ __forceinline__ float RowSum(float v) {
  v += __shfl_xor_sync(0xFFFFFFFFu, v, 1);
  return v + __shfl_xor_sync(0xFFFFFFFFu, v, 2);
}

template <int N, int Blocks>
class OnlineSoftmax {
 public:
  // `factor`: what a score is multiplied with to be a power of two.
  __device__ explicit OnlineSoftmax(float factor) : factor_(factor) {
#pragma unroll
    for (int i = 0; i < Blocks; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) most_[i][h] = -INFINITY, sum_[i][h] = 0.0f;
    }
  }

  // Scores become probabilities, up to the factor of their row, and `out` is scaled to the new
  // maximum. Scores of -infinity count as nothing.
  template <int Columns>
  __device__ __forceinline__ void Apply(float (&scores)[Blocks][N / 8][4],
                                        float (&out)[Blocks][Columns / 8][4]) {
#pragma unroll
    for (int i = 0; i < Blocks; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float most = most_[i][h];
#pragma unroll
        for (int j = 0; j < N / 8; ++j) {
          most = fmaxf(most, fmaxf(scores[i][j][2 * h], scores[i][j][2 * h + 1]));
        }
        most = RowMost(most);
        const float base = most == -INFINITY ? 0.0f : most * factor_;
        const float scale = ptx::Exp2(most_[i][h] * factor_ - base);
        most_[i][h] = most;
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < N / 8; ++j) {
#pragma unroll
          for (int e = 2 * h; e < 2 * h + 2; ++e) {
            scores[i][j][e] = ptx::Exp2(fmaf(scores[i][j][e], factor_, -base));
            sum += scores[i][j][e];
          }
        }
        sum_[i][h] = sum_[i][h] * scale + sum;
#pragma unroll
        for (int j = 0; j < Columns / 8; ++j) {
#pragma unroll
          for (int e = 2 * h; e < 2 * h + 2; ++e) out[i][j][e] *= scale;
        }
      }
    }
  }

  // After the last tile: what a row of `out` is multiplied with, and its log-sum-exp. A row that
  // attends to nothing is 0.
  __device__ __forceinline__ void Finish(float (&inverse)[Blocks][2], float (&lse)[Blocks][2]) {
#pragma unroll
    for (int i = 0; i < Blocks; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float sum = RowSum(sum_[i][h]);
        inverse[i][h] = sum == 0.0f ? 0.0f : 1.0f / sum;
        lse[i][h] = sum == 0.0f ? -INFINITY : most_[i][h] * factor_ * kLn2 + logf(sum);
        if (most_[i][h] == -INFINITY && sum != 0.0f) lse[i][h] = sum;  // NaN
      }
    }
  }

 private:
  float factor_;
  float most_[Blocks][2], sum_[Blocks][2];
};

}  // namespace jaxsparse
