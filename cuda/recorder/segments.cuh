// Codes of segments, on both sides of a layer.
//
// Reading: a segment under a code is what the code says, and nobody loads it. Writing: a run of 32
// outputs that is all zero or all at the bound is held back; once its whole segment is known,
// either the segment's code says it, or the run is filled in with the constant. So a code costs
// nothing to clear and no value is computed or kept for it.
#pragma once

#include <cstdint>

#include "cuda/recorder/probe.cuh"

namespace jaxsparse {

constexpr int kRun = 32;

// The code that all segments of a row have, or kMixed. Uniform over the threads that call it, one
// row at a time.
__device__ inline uint8_t RowCode(const uint8_t* codes, int64_t segments) {
  if (segments == 0 || codes[0] == kMixed) return kMixed;
  for (int64_t s = 1; s < segments; ++s) {
    if (codes[s] != codes[0]) return kMixed;
  }
  return codes[0];
}

// The outputs [first, last) of one row; both are multiples of the segment, or the row's end.
class SegmentWriter {
 public:
  // Shared bytes for `outputs` outputs in `segments` segments.
  static __host__ __device__ int64_t Bytes(int64_t outputs, int64_t segments) {
    return (outputs + kRun - 1) / kRun + 2 * segments;
  }

  __device__ SegmentWriter(uint8_t* shared, float* out, int64_t first, int64_t last,
                           int64_t segment, float upper)
      : runs_(shared),
        not_zero_(shared + (last - first + kRun - 1) / kRun),
        not_upper_(not_zero_ + (last - first + segment - 1) / segment),
        out_(out),
        first_(first),
        last_(last),
        segment_(segment),
        upper_(upper) {}

  // Before a barrier that precedes the first Put.
  __device__ void Clear(int thread, int threads) {
    const int64_t bytes = 2 * (not_upper_ - not_zero_);
    for (int64_t i = thread; i < bytes; i += threads) not_zero_[i] = 0;
  }

  // A warp's run: output first + run * 32 + lane. All lanes call it; `valid` where the output
  // exists.
  __device__ void Put(int64_t run, float y, bool valid) {
    const int64_t n = first_ + run * kRun + threadIdx.x % 32;
    const bool zero = y == 0.0f, full = y == upper_;
    const uint8_t code = __all_sync(~0u, zero || !valid)   ? kZero
                         : __all_sync(~0u, full || !valid) ? kUpper
                                                           : kMixed;
    if (threadIdx.x % 32 == 0) runs_[run] = code;
    if (!valid) return;
    const int64_t s = (n - first_) / segment_;
    if (!zero) not_zero_[s] = 1;
    if (!full) not_upper_[s] = 1;
    if (code == kMixed) out_[n] = y;
  }

  __device__ uint8_t Code(int64_t s) const {
    return !not_zero_[s] ? kZero : !not_upper_[s] ? kUpper : kMixed;
  }

  // After a barrier: the segments' codes, and the runs that were held back in mixed segments.
  __device__ void Finish(uint8_t* codes, int thread, int threads) const {
    const int64_t segments = not_upper_ - not_zero_;
    for (int64_t s = thread; s < segments; s += threads) codes[first_ / segment_ + s] = Code(s);
    for (int64_t n = first_ + thread; n < last_; n += threads) {
      const uint8_t run = runs_[(n - first_) / kRun];
      if (run == kMixed || Code((n - first_) / segment_) != kMixed) continue;
      out_[n] = run == kUpper ? upper_ : 0.0f;
    }
  }

 private:
  uint8_t *runs_, *not_zero_, *not_upper_;
  float* out_;
  int64_t first_, last_, segment_;
  float upper_;
};

}  // namespace jaxsparse
