// The softmax of one warpgroup's 64 rows, tile by tile, in base 2. A thread holds columns 8j +
// 2*(lane%4) + e of rows lane/4 and lane/4 + 8 of its warp's 16 in scores[4j + 2h + e].
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxsparse {

__device__ __forceinline__ float Exp2(float v) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(v));
  return out;
}

template <int Columns>
class RowSoftmax {
 public:
  static constexpr int kCount = Columns / 2;

  // Scores to probabilities, relative to a bound that rises only when the maximum has grown by more
  // than 2^8: the sums stay in range, and most tiles leave the products alone. True where this warp
  // must scale what it has summed up by `factor`.
  __device__ __forceinline__ bool Step(float (&scores)[kCount], float scale_log2,
                                       float (&factor)[2]) {
    float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int i = 0; i < kCount; ++i) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], scores[i]);
    bool raised = false;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 1));
      top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 2)) * scale_log2;
      raised |= top[h] > bound_[h] + kSlack;
    }
    const bool any = __any_sync(~0u, raised);
    if (any) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float bound = top[h] > bound_[h] + kSlack ? top[h] : bound_[h];
        factor[h] = bound == bound_[h] ? 1.0f : Exp2(bound_[h] - bound);
        sum_[h] *= factor[h];
        bound_[h] = bound;
      }
    }
    const float offset[2] = {Offset(0), Offset(1)};
    float sums[4] = {};
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      scores[i] = Exp2(fmaf(scores[i], scale_log2, -offset[i / 2 % 2]));
      sums[i % 4] += scores[i];
    }
    sum_[0] += sums[0] + sums[1];
    sum_[1] += sums[2] + sums[3];
    return any;
  }

  // After the last tile: the factor of the rows' products and the natural logarithm of their sums
  // of exponentials.
  __device__ __forceinline__ void Finish(float (&factor)[2], float (&lse)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = sum_[h];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      factor[h] = sum == 0.0f ? 0.0f : 1.0f / sum;
      lse[h] = sum == 0.0f ? -INFINITY : (bound_[h] + log2f(sum)) * kLn2;
    }
  }

 private:
  static constexpr float kSlack = 8.0f, kLn2 = 0.6931471805599453f;

  // A row that attends to nothing yet has no bound; its probabilities are 0.
  __device__ __forceinline__ float Offset(int h) const {
    return bound_[h] == -INFINITY ? 0.0f : bound_[h];
  }

  float bound_[2] = {-INFINITY, -INFINITY}, sum_[2] = {};
};

}  // namespace jaxsparse
