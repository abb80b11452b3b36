// SaturationProbe: what a thread learns of its four images while it stores their values, merged to
// one word a state.
//
// Bit i of a word is set once image i has a value that rules the state out. No value is read again
// for it: a probe costs a minimum and a maximum a stored value, and one shuffle tree and one shared
// atomic a warp and layer.
#pragma once

#include <cstdint>

namespace jaxsparse {

enum SegmentCode : uint8_t { kMixed = 0, kZero = 1, kUpper = 2 };

// Whether a code stands for its segment; any other number is kMixed.
__device__ inline bool IsSet(uint8_t code) { return code == kZero || code == kUpper; }

// Unlike fminf and fmaxf, these keep a NaN.
__device__ inline float MinOf(float a, float b) {
  float least;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
  return least;
}

__device__ inline float MaxOf(float a, float b) {
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
  return most;
}

// min(max(v, 0), upper); a NaN stays.
__device__ inline float Bound(float v, float upper) { return MinOf(MaxOf(v, 0.0f), upper); }

class SaturationProbe {
 public:
  __device__ explicit SaturationProbe(float upper) : upper_(upper) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      lowest_[i] = upper;
      highest_[i] = 0.0f;
    }
  }

  // Values in [0, upper], or NaN.
  __device__ void See(const float (&y)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      lowest_[i] = MinOf(lowest_[i], y[i]);
      highest_[i] = MaxOf(highest_[i], y[i]);
    }
  }

  // Lanes `groups` apart hold the same four images; group g's are the bits 4g.. of the two words.
  __device__ void Merge(int groups, uint32_t* not_zero, uint32_t* not_upper) {
    uint32_t seen = Seen();
    for (int step = groups; step < 32; step <<= 1) seen |= __shfl_xor_sync(~0u, seen, step);
    const int lane = threadIdx.x % 32;
    if (lane >= groups || seen == 0) return;
    atomicOr(not_zero, (seen & 15u) << (4 * lane));
    atomicOr(not_upper, (seen >> 4) << (4 * lane));
  }

  // Each lane holds four images of its own, bit `lane` of four words each.
  __device__ void MergeLanes(uint32_t* not_zero, uint32_t* not_upper) {
    const uint32_t seen = Seen();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t zero = __ballot_sync(~0u, seen >> i & 1);
      const uint32_t upper = __ballot_sync(~0u, seen >> (4 + i) & 1);
      if (threadIdx.x % 32 == 0) atomicOr(not_zero + i, zero);
      if (threadIdx.x % 32 == 0) atomicOr(not_upper + i, upper);
    }
  }

 private:
  // Bit i: image i is not all zero; bit 4 + i: not all at the bound. A NaN rules both out.
  __device__ uint32_t Seen() const {
    uint32_t seen = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      seen |= (highest_[i] == 0.0f ? 0u : 1u) << i | (lowest_[i] == upper_ ? 0u : 16u) << i;
    }
    return seen;
  }

  float upper_;
  float lowest_[4], highest_[4];
};

}  // namespace jaxsparse
