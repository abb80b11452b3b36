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
namespace ptx {

// As CopyOrZero16, and brings the 256 bytes around `source` into L2.
__device__ __forceinline__ void CopyOrZero16Ahead(uint32_t shared, const void* source,
                                                  uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(shared), "l"(source),
               "r"(bytes)
               : "memory");
}

}  // namespace ptx

inline constexpr int kGatherThreads = 128;
inline constexpr int kGatherBarrier = 1;
inline constexpr int kRowBytes = kStepUnits * kUnitBytes;

// The rows of a tile and of the next one, as the gathering threads share them.
template <int TileM>
struct RowTable {
  struct {
    uint32_t base[TileM];
    uint32_t taps[2][TileM];
  } tile[2];
  uint32_t offset[kMaxTaps];  // TapOffset of every tap

  __device__ void FillOffsets(const ConvParams& p, int thread, int threads) {
    const int taps = p.kernel_h * p.kernel_w;
    for (int t = thread; t < kMaxTaps; t += threads) offset[t] = t < taps ? TapOffset(p, t) : 0;
  }
};

// `Ahead`: of pixels of several lines the next line comes into L2 as well, which the taps after
// these read. Worth it beside wide tiles: the copies of narrow ones are what they wait for.
template <int TileM, bool Ahead>
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

  // Announces M tile `tile`, which Begin will go to: its rows are looked up while the steps of the
  // current one are copied, and their flat output pixels (-1: none) left in `pixels`.
  __device__ void Announce(int tile, int32_t* pixels) {
    first_ = tile * TileM + thread_;
    pixels_ = pixels;
    found_ = 0;
  }

  // One step of the look-up; once a K step, so that what it loads has come when the next one needs
  // it.
  __device__ void LookUp(const PixelRows& rows) {
    if (found_ == kLookUps) return;
#pragma unroll
    for (int i = 0; i < kLooked; ++i) {
      const int row = first_ + i * kGatherThreads;
      if (found_ == 0) listed_[i] = rows.List(row);
      if (found_ == 1) placed_[i] = rows.Place(row, listed_[i]);
      if (found_ == 2) Enter(rows, rows.Find(placed_[i]), thread_ + i * kGatherThreads);
    }
    ++found_;
  }

  // Goes to K step `step` of the announced tile.
  __device__ void Begin(const PixelRows& rows, int step) {
    while (found_ < kLookUps) LookUp(rows);
    ptx::NamedBarrier(kGatherBarrier, kGatherThreads);
    current_ ^= 1;
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
    for (int i = 0; i < kRows; ++i)
      base_[i] = table_.tile[current_].base[first_row_ + i * kRowStep];
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
    if (Ahead && p_.pixel_units > kStepUnits) {
      CopyRows(shared, ptx::CopyOrZero16Ahead);
    } else {
      CopyRows(shared, ptx::CopyOrZero16);
    }
  }

 private:
  static constexpr int kRowStep = kGatherThreads / kStepUnits;
  static constexpr int kRows = TileM / kRowStep;
  static constexpr int kLooked = TileM / kGatherThreads;  // rows that a thread looks up
  static constexpr int kLookUps = 3;
  static_assert(TileM % kRowStep == 0, "tile_m must be a multiple of 16");
  static_assert(TileM % kGatherThreads == 0, "every thread looks up as many rows");
  static_assert(kRowStep % 8 == 0, "a thread's rows must share one place in the swizzle");

  // Row `r` of the announced tile. Nobody reads its half of the table before they all meet in
  // Begin.
  __device__ void Enter(const PixelRows& rows, const OutputPixel& pixel, int r) {
    const TapWindow window = FindTapWindow(p_, pixel);
    pixels_[r] = pixel.active ? rows.Flat(pixel) : -1;
    auto& tile = table_.tile[current_ ^ 1];
    tile.base[r] = window.base;
    tile.taps[0][r] = static_cast<uint32_t>(window.taps);
    tile.taps[1][r] = static_cast<uint32_t>(window.taps >> 32);
  }

  template <class CopyUnit>
  __device__ __forceinline__ void CopyRows(uint32_t shared, CopyUnit copy) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const uint32_t bytes = (exists_ >> i) & 1 ? kUnitBytes : 0;
      copy(shared + target_ + i * kRowStep * kRowBytes,
           x_ + static_cast<uint64_t>(at_[i]) * kUnitBytes, bytes);
    }
  }

  __device__ void ReadTapBits() {
    word_ = tap_ / 32;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = first_row_ + i * kRowStep;
      taps_[i] = word_ < kMaxTaps / 32 ? table_.tile[current_].taps[word_][row] : 0;
    }
  }

  const ConvParams& p_;
  RowTable<TileM>& table_;
  const char* x_;
  int thread_, lane_unit_, first_row_;
  int first_ = 0, found_ = 0, current_ = 0;
  int32_t* pixels_ = nullptr;
  PixelRows::Listed listed_[kLooked];
  PixelRows::Placed placed_[kLooked];
  uint32_t target_;
  int tap_ = 0, unit_ = 0, word_ = -1;
  uint32_t base_[kRows], taps_[kRows], at_[kRows], exists_ = 0;
};

}  // namespace jaxsparse
