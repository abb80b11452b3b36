// SaturationProbe: what a thread learns of its four images while it stores their values, merged to
// one word a state.
//
// Bit i of a word is set once image i has a value that rules the state out. No value is read again
// for it: a probe costs two compares a stored value, and one shuffle tree and one shared atomic a
// warp and layer.
#pragma once

#include <cstdint>

namespace jaxsparse {

enum SegmentCode : uint8_t { kMixed = 0, kZero = 1, kUpper = 2 };

class SaturationProbe {
 public:
  __device__ explicit SaturationProbe(float upper) : upper_(upper) {}

  __device__ void See(const float (&y)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // A NaN rules both out.
      seen_ |= (y[i] != 0.0f ? 1u : 0u) << i | (y[i] != upper_ ? 16u : 0u) << i;
    }
  }

  // Lanes `groups` apart hold the same four images; group g's are the bits 4g.. of the two words.
  __device__ void Merge(int groups, uint32_t* not_zero, uint32_t* not_upper) {
    for (int step = groups; step < 32; step <<= 1) seen_ |= __shfl_xor_sync(~0u, seen_, step);
    const int lane = threadIdx.x % 32;
    if (lane >= groups || seen_ == 0) return;
    atomicOr(not_zero, (seen_ & 15u) << (4 * lane));
    atomicOr(not_upper, (seen_ >> 4) << (4 * lane));
  }

 private:
  float upper_;
  uint32_t seen_ = 0;
};

// min(max(v, 0), upper); a NaN stays.
__device__ inline float Bound(float v, float upper) {
  v = v < 0.0f ? 0.0f : v;
  return v > upper ? upper : v;
}

}  // namespace jaxsparse
