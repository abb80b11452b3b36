// DepthPixels: one warpgroup fills operand tiles whose K is output pixels: 64 of them a step, by
// cp.async, as blocks of 128 bytes of columns in the 128-byte swizzle. Columns are those of a
// (pixel, channel) matrix, or of its (pixel, tap and channel) unfolding; what does not exist
// arrives as zeros (the phantom read, after DynaSpa 3.1).
#pragma once

#include "cuda/core/async_copy.cuh"
#include "cuda/tile/conv/tap_window.cuh"
#include "cuda/tile/load/depth_gather.cuh"

namespace jaxsparse {

// One output pixel as a row of K: 16 bytes, found once a call and read by every tile.
struct alignas(16) DepthPixel {
  uint32_t base;      // of its window in the input, as TapWindow
  uint32_t taps_low;  // TapWindow::taps
  uint32_t taps_high;
  int32_t pixel;  // flat, of the output; -1: nothing counts
};

// The four pixels that this thread copies in a step. Asking memory and looking at the answer are
// apart, so that a step in between hides the latency.
class DepthPixels {
 public:
  __device__ DepthPixels(const DepthPixel* table, int thread)
      : table_(table + thread / kRowStepUnits) {}

  __device__ void Ask(int step) {
#pragma unroll
    for (int i = 0; i < kDepthThreadRows; ++i) {
      const DepthPixel* at = table_ + static_cast<int64_t>(step) * kDepthRows + i * kDepthRowStep;
      asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(asked_[i].base), "=r"(asked_[i].taps_low), "=r"(asked_[i].taps_high),
                     "=r"(asked_[i].pixel)
                   : "l"(at));
    }
  }

  __device__ void Take() {
#pragma unroll
    for (int i = 0; i < kDepthThreadRows; ++i) rows[i] = asked_[i];
  }

  DepthPixel rows[kDepthThreadRows];

 private:
  const DepthPixel* table_;
  DepthPixel asked_[kDepthThreadRows];
};

// Columns [first, first + 64*Blocks) of the unfolding: unit u of a row is unit u % pixel_units of
// tap u / pixel_units, so a thread keeps one tap a block for as long as the columns stay.
template <int Blocks>
class DepthTaps {
 public:
  static constexpr int kBytes = Blocks * kDepthRows * kRowStepBytes;

  __device__ DepthTaps(const ConvParams& p, int thread)
      : p_(p),
        x_(static_cast<const char*>(p.x)),
        lane_unit_(thread % kRowStepUnits),
        target_(SwizzledPlace(thread)) {}

  __device__ static uint32_t SwizzledPlace(int thread) {
    const int row = thread / kRowStepUnits;
    return row * kRowStepBytes + (((thread % kRowStepUnits) ^ (row % 8)) * kRowUnitBytes);
  }

  // Goes to the columns from unit `first` on.
  __device__ void Aim(int first) {
    const int taps = p_.kernel_h * p_.kernel_w;
#pragma unroll
    for (int b = 0; b < Blocks; ++b) {
      const int unit = first + b * kRowStepUnits + lane_unit_, tap = unit / p_.pixel_units;
      const int known = min(tap, taps - 1);
      offset_[b] = TapOffset(p_, known) + (unit - tap * p_.pixel_units);
      low_[b] = tap < taps && tap < 32 ? 1u << tap : 0;
      high_[b] = tap < taps && tap >= 32 ? 1u << (tap - 32) : 0;
    }
  }

  // Starts the copies of this thread's rows.
  __device__ void Copy(uint32_t shared, const DepthPixel (&rows)[kDepthThreadRows]) const {
#pragma unroll
    for (int i = 0; i < kDepthThreadRows; ++i) {
#pragma unroll
      for (int b = 0; b < Blocks; ++b) {
        const bool exists = ((rows[i].taps_low & low_[b]) | (rows[i].taps_high & high_[b])) != 0;
        const uint32_t at = exists ? rows[i].base + offset_[b] : 0;
        ptx::CopyOrZero16(shared + target_ + (b * kDepthRows + i * kDepthRowStep) * kRowStepBytes,
                          x_ + static_cast<uint64_t>(at) * kUnitBytes, exists ? kUnitBytes : 0);
      }
    }
  }

 private:
  const ConvParams& p_;
  const char* x_;
  int lane_unit_;
  uint32_t target_;
  uint32_t offset_[Blocks], low_[Blocks], high_[Blocks];
};

// Columns [first, first + 64*Blocks) of the output pixels themselves.
template <int Blocks>
class DepthColumns {
 public:
  static constexpr int kBytes = Blocks * kDepthRows * kRowStepBytes;

  __device__ DepthColumns(const void* data, int units, int thread)
      : data_(static_cast<const char*>(data)),
        units_(units),
        lane_unit_(thread % kRowStepUnits),
        target_(DepthTaps<1>::SwizzledPlace(thread)) {}

  // Starts the copies of this thread's rows from unit `first` on.
  __device__ void Copy(uint32_t shared, const DepthPixel (&rows)[kDepthThreadRows],
                       int first) const {
#pragma unroll
    for (int i = 0; i < kDepthThreadRows; ++i) {
      const bool counts = rows[i].pixel >= 0;
      const int64_t row = counts ? static_cast<int64_t>(rows[i].pixel) * units_ : 0;
#pragma unroll
      for (int b = 0; b < Blocks; ++b) {
        const int unit = first + b * kRowStepUnits + lane_unit_;
        const bool reads = counts && unit < units_;
        ptx::CopyOrZero16(shared + target_ + (b * kDepthRows + i * kDepthRowStep) * kRowStepBytes,
                          data_ + (reads ? row + unit : 0) * kUnitBytes, reads ? kUnitBytes : 0);
      }
    }
  }

 private:
  const char* data_;
  int units_, lane_unit_;
  uint32_t target_;
};

}  // namespace jaxsparse
