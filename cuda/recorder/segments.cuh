// Codes of segments, on both sides of a layer.
//
// Reading: a segment under a code is what the code says, and is not loaded. Writing: a run of 32
// outputs that is all zero or all at the bound is held back; once its whole segment is known,
// either the segment's code says it, or the run is filled in with the constant. So a code costs
// nothing to clear and no value is computed or kept for it. A run costs two ballots and one byte;
// where segments are whole runs, their codes are what their runs say.
#pragma once

#include <cstdint>

#include "cuda/recorder/probe.cuh"

namespace jaxsparse {

constexpr int kRun = 32;

// The code that all segments of a row have, or kMixed; a thread a row.
__device__ inline uint8_t RowCode(const uint8_t* codes, int64_t segments) {
  if (segments == 0 || !IsSet(codes[0])) return kMixed;
  for (int64_t s = 1; s < segments; ++s) {
    if (codes[s] != codes[0]) return kMixed;
  }
  return codes[0];
}

// The same of one row, by all threads of a block.
__device__ inline uint8_t BlockRowCode(const uint8_t* codes, int64_t segments) {
  if (segments == 0 || !IsSet(codes[0])) return kMixed;
  const uint8_t code = codes[0];
  bool same = true;
  for (int64_t s = 1 + threadIdx.x; same && s < segments; s += blockDim.x) same = codes[s] == code;
  return segments == 1 || __syncthreads_and(same) ? code : static_cast<uint8_t>(kMixed);
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
      : outputs_(static_cast<uint32_t>(last - first)),
        segment_(static_cast<uint32_t>(segment)),
        upper_(upper),
        whole_runs_(segment % kRun == 0 || segment >= last - first),
        runs_(shared),
        not_zero_(shared + (outputs_ + kRun - 1) / kRun),
        not_upper_(not_zero_ + (outputs_ + segment_ - 1) / segment_),
        out_(out + first),
        first_(first / segment) {}

  // The writer of the same outputs of another row: `bytes` further in shared memory.
  __device__ SegmentWriter Of(int64_t bytes, float* row) const {
    SegmentWriter other = *this;
    other.runs_ += bytes;
    other.not_zero_ += bytes;
    other.not_upper_ += bytes;
    other.out_ = row;
    return other;
  }

  // Before a barrier that precedes the first Put.
  __device__ void Clear(int thread, int threads) {
    if (whole_runs_) return;
    const uint32_t bytes = 2 * static_cast<uint32_t>(not_upper_ - not_zero_);
    for (uint32_t i = thread; i < bytes; i += threads) not_zero_[i] = 0;
  }

  // A warp's run: output first + run * 32 + lane. All lanes call it; `valid` where the output
  // exists.
  __device__ void Put(uint32_t run, float y, bool valid) {
    const bool zero = y == 0.0f, full = y == upper_;
    const uint8_t code = __all_sync(~0u, zero || !valid)   ? kZero
                         : __all_sync(~0u, full || !valid) ? kUpper
                                                           : kMixed;
    if (threadIdx.x % 32 == 0) runs_[run] = code;
    if (!valid) return;
    const uint32_t n = run * kRun + threadIdx.x % 32;
    if (code == kMixed) out_[n] = y;
    if (whole_runs_) return;
    if (!zero) not_zero_[n / segment_] = 1;
    if (!full) not_upper_[n / segment_] = 1;
  }

  // After a barrier, by whole warps: the segments' codes, and the runs that were held back in mixed
  // segments. `warp` of `warps` take segments, and within one segment a lane a run.
  __device__ void Finish(uint8_t* codes, uint32_t warp, uint32_t warps) const {
    if (!whole_runs_) return FinishParts(codes + first_, warp, warps);
    const uint32_t lane = threadIdx.x % 32, runs = (outputs_ + kRun - 1) / kRun;
    const uint32_t length = (segment_ + kRun - 1) / kRun;
    for (uint32_t s = warp; s * length < runs; s += warps) {
      const uint32_t begin = s * length, end = min(begin + length, runs);
      bool zero = true, full = true;
      for (uint32_t r = begin + lane; r < end; r += 32) {
        zero &= runs_[r] == kZero;
        full &= runs_[r] == kUpper;
      }
      zero = __all_sync(~0u, zero);
      full = __all_sync(~0u, full);
      if (lane == 0) codes[first_ + s] = zero ? kZero : full ? kUpper : kMixed;
      if (!zero && !full) Fill(begin, end);
    }
  }

 private:
  // The runs of [begin, end) that were held back.
  __device__ void Fill(uint32_t begin, uint32_t end) const {
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t r = begin; r < end; r += 32) {
      uint32_t held = __ballot_sync(~0u, r + lane < end && runs_[r + lane] != kMixed);
      for (; held != 0; held &= held - 1) {
        const uint32_t run = r + __ffs(held) - 1, n = run * kRun + lane;
        if (n < outputs_) out_[n] = runs_[run] == kUpper ? upper_ : 0.0f;
      }
    }
  }

  __device__ uint8_t Code(uint32_t s) const {
    return !not_zero_[s] ? kZero : !not_upper_[s] ? kUpper : kMixed;
  }

  // Segments that are not multiples of a run.
  __device__ void FinishParts(uint8_t* codes, uint32_t warp, uint32_t warps) const {
    const uint32_t thread = warp * 32 + threadIdx.x % 32, threads = warps * 32;
    const uint32_t segments = static_cast<uint32_t>(not_upper_ - not_zero_);
    for (uint32_t s = thread; s < segments; s += threads) codes[s] = Code(s);
    for (uint32_t n = thread; n < outputs_; n += threads) {
      const uint8_t run = runs_[n / kRun];
      if (run == kMixed || Code(n / segment_) != kMixed) continue;
      out_[n] = run == kUpper ? upper_ : 0.0f;
    }
  }

  uint32_t outputs_, segment_;
  float upper_;
  bool whole_runs_;
  uint8_t *runs_, *not_zero_, *not_upper_;
  float* out_;
  int64_t first_;
};

}  // namespace jaxsparse
