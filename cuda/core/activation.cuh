// The activation of sums that are stored: two comparisons, or a function that is not inlined.
#pragma once

#include "cuda/core/activation.h"
#include "cuda/core/element.cuh"

namespace jaxsparse {

// The activations that need more than a comparison: one function for all sums.
inline __device__ __noinline__ float Smooth(Activation kind, float v) {
  return simt::Activate(kind, v);
}

// An activation as two bounds, which let a NaN pass, or as a function.
class SumActivation {
 public:
  __device__ explicit SumActivation(Activation kind)
      : kind_(kind),
        smooth_(kind == Activation::kSilu || kind == Activation::kGelu),
        low_(kind == Activation::kRelu || kind == Activation::kRelu6 ? 0.0f : -kInfinity),
        high_(kind == Activation::kRelu6 ? 6.0f : kInfinity) {}

  __device__ __forceinline__ float Of(float v) const {
    if (smooth_) return Smooth(kind_, v);
    v = v < low_ ? low_ : v;
    return v > high_ ? high_ : v;
  }

 private:
  static constexpr float kInfinity = __builtin_huge_valf();

  Activation kind_;
  bool smooth_;
  float low_, high_;
};

}  // namespace jaxsparse
