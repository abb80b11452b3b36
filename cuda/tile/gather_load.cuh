// GatherLoad: one warpgroup fills A tiles with scattered pixels. Eight lanes copy 128 bytes of a
// row by cp.async, 16 bytes each, into the 128-byte swizzle; a tap that does not exist arrives as
// zeros (the phantom read, after DynaSpa 3.1).
//
// Unit u of K is unit u % pixel_units of tap u / pixel_units, as the kernel's own memory order has
// it. Where a pixel is a whole number of stages the taps of one stage's channels follow each other:
// neighbouring taps read mostly the same lines. Narrower inputs go through K in memory order and
// share a stage between taps; no K is padded but the last stage's. Per row and stage a thread
// spends one bit test, one 32-bit addition, one select, one wide multiply-add and the copy; all but
// the last two before the wait.
#pragma once

#include "cuda/core/async_copy.cuh"
#include "cuda/core/mbarrier.cuh"
#include "cuda/core/warpgroup.cuh"
#include "cuda/tile/tap_window.cuh"

namespace jaxsparse {

inline constexpr int kGatherThreads = 128;
inline constexpr int kGatherBarrier = 1;
inline constexpr int kRowBytes = kStepUnits * kUnitBytes;

// The rows of the current tile, as the gathering threads share them.
template <int TileM>
struct RowTable {
  uint32_t base[TileM];
  uint32_t taps[2][TileM];
  uint32_t offset[kMaxTaps];  // TapOffset of every tap

  __device__ void FillOffsets(const ConvParams& p, int thread, int threads) {
    const int taps = p.kernel_h * p.kernel_w;
    for (int t = thread; t < kMaxTaps; t += threads) offset[t] = t < taps ? TapOffset(p, t) : 0;
  }
};

template <int TileM>
class GatherLoad {
 public:
  __device__ GatherLoad(const ConvParams& p, RowTable<TileM>& table, int thread)
      : p_(p),
        table_(table),
        x_(static_cast<const char*>(p.x)),
        thread_(thread),
        lane_unit_(thread % kStepUnits),
        first_row_(thread / kStepUnits) {
    target_ = first_row_ * kRowBytes + ((lane_unit_ ^ (first_row_ % 8)) * kUnitBytes);
  }

  // Looks up the rows of M tile `tile`, leaves their flat output pixels (-1: none) in `pixels`, and
  // goes to K step `step`.
  __device__ void Begin(const PixelRows& rows, int tile, int step, int32_t* pixels) {
    ptx::NamedBarrier(kGatherBarrier, kGatherThreads);
    for (int r = thread_; r < TileM; r += kGatherThreads) {
      const OutputPixel pixel = rows.Find(tile * TileM + r);
      const TapWindow window = FindTapWindow(p_, pixel);
      pixels[r] = pixel.active ? rows.Flat(pixel) : -1;
      table_.base[r] = window.base;
      table_.taps[0][r] = static_cast<uint32_t>(window.taps);
      table_.taps[1][r] = static_cast<uint32_t>(window.taps >> 32);
    }
    ptx::NamedBarrier(kGatherBarrier, kGatherThreads);
    if (p_.taps_first) {
      const int taps = p_.kernel_h * p_.kernel_w;
      tap_ = step % taps;
      unit_ = step / taps * kStepUnits + lane_unit_;
    } else {
      const int unit = step * kStepUnits + lane_unit_;
      tap_ = unit / p_.pixel_units;
      unit_ = unit - tap_ * p_.pixel_units;
    }
    word_ = -1;
#pragma unroll
    for (int i = 0; i < kRows; ++i) base_[i] = table_.base[first_row_ + i * kRowStep];
  }

  // Works out where this K step's copies read from, before there is room for them, and moves to the
  // next step.
  __device__ void Aim() {
    if (word_ != tap_ / 32) ReadTapBits();
    const uint32_t offset = table_.offset[min(tap_, kMaxTaps - 1)] + unit_;
    exists_ = 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const uint32_t exists = (taps_[i] >> (tap_ % 32)) & 1;
      at_[i] = exists ? base_[i] + offset : 0;
      exists_ |= exists << i;
    }
    if (p_.taps_first) {
      if (++tap_ == p_.kernel_h * p_.kernel_w) {
        tap_ = 0;
        unit_ += kStepUnits;
      }
      return;
    }
    unit_ += kStepUnits;
    while (unit_ >= p_.pixel_units) {
      unit_ -= p_.pixel_units;
      ++tap_;
    }
  }

  // The first unit of K of the step that Aim will take next.
  __device__ int unit() const { return tap_ * p_.pixel_units + unit_ - lane_unit_; }

  // Starts the copies into the A tile at `shared`.
  __device__ void Copy(uint32_t shared) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const uint32_t bytes = (exists_ >> i) & 1 ? kUnitBytes : 0;
      ptx::CopyOrZero16(shared + target_ + i * kRowStep * kRowBytes,
                        x_ + static_cast<uint64_t>(at_[i]) * kUnitBytes, bytes);
    }
  }

 private:
  static constexpr int kRowStep = kGatherThreads / kStepUnits;
  static constexpr int kRows = TileM / kRowStep;
  static_assert(TileM % kRowStep == 0, "tile_m must be a multiple of 16");
  static_assert(kRowStep % 8 == 0, "a thread's rows must share one place in the swizzle");

  __device__ void ReadTapBits() {
    word_ = tap_ / 32;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      taps_[i] = word_ < kMaxTaps / 32 ? table_.taps[word_][first_row_ + i * kRowStep] : 0;
    }
  }

  const ConvParams& p_;
  RowTable<TileM>& table_;
  const char* x_;
  int thread_, lane_unit_, first_row_;
  uint32_t target_;
  int tap_ = 0, unit_ = 0, word_ = -1;
  uint32_t base_[kRows], taps_[kRows], at_[kRows], exists_ = 0;
};

}  // namespace jaxsparse
