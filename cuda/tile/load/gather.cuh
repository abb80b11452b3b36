// GatherLoad: one warpgroup fills A tiles with scattered pixels. Eight lanes copy 128 bytes of a
// row by cp.async, 16 bytes each, into the 128-byte swizzle; a tap that does not exist arrives as
// zeros (the phantom read, after DynaSpa 3.1).
//
// Unit u of K is unit u % pixel_units of tap u / pixel_units, as the kernel's own memory order has
// it. With taps_first the taps of one stage's channels follow each other: neighbouring taps read
// mostly the same lines. Units past a pixel's last are zeros then, and the weights beside them
// those of the next tap. Other inputs go through K in memory order and share a stage between taps;
// no K is padded but the last stage's. Per row and stage a thread spends one bit test, one 32-bit
// addition, one wide multiply-add and the copy. What counts is how many instructions follow each
// other: a scheduler has one loading warp.
#pragma once

#include "cuda/core/async_copy.cuh"
#include "cuda/core/mbarrier.cuh"
#include "cuda/core/warpgroup.cuh"
#include "cuda/tile/conv/tap_window.cuh"

namespace jaxsparse {
namespace ptx {

// Copies 16 bytes, or zeros where `bits` has none of `mask`; `source` is not read then. `Ahead`:
// brings the 256 bytes around it into L2.
template <bool Ahead>
__device__ __forceinline__ void CopyIfAny16(uint32_t shared, const void* source, uint32_t bits,
                                            uint32_t mask) {
#define JAXSPARSE_COPY_IF_ANY(AROUND)                                                    \
  asm volatile(                                                                          \
      "{\n.reg .pred none;\n.reg .b32 any;\n"                                            \
      "and.b32 any, %2, %3;\n"                                                           \
      "setp.eq.u32 none, any, 0;\n"                                                      \
      "cp.async.cg.shared.global.L2::" AROUND " [%0], [%1], 16, none;\n}" ::"r"(shared), \
      "l"(source), "r"(bits), "r"(mask)                                                  \
      : "memory")
  if constexpr (Ahead) {
    JAXSPARSE_COPY_IF_ANY("256B");
  } else {
    JAXSPARSE_COPY_IF_ANY("128B");
  }
#undef JAXSPARSE_COPY_IF_ANY
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

  // At least kMaxTaps threads.
  __device__ void FillOffsets(const ConvParams& p, int thread) {
    const int taps = p.kernel_h * p.kernel_w;
    if (thread < kMaxTaps) offset[thread] = thread < taps ? TapOffset(p, thread) : 0;
  }
};

// `Ahead`: of pixels of several lines the next line comes into L2 as well, which the taps after
// these read. Worth it beside wide tiles: the copies of narrow ones are what they wait for.
template <int TileM, bool Ahead, bool Plain>
class GatherLoad {
 public:
  using Rows = PixelRows<Plain>;

  __device__ GatherLoad(const ConvParams& p, RowTable<TileM>& table, int thread)
      : p_(p),
        table_(table),
        x_(static_cast<const char*>(p.x)),
        thread_(thread),
        lane_unit_(thread % kStepUnits),
        first_row_(thread / kStepUnits),
        pixel_units_(p.pixel_units),
        period_(p.taps_first ? p.kernel_h * p.kernel_w : 0) {
    target_ = first_row_ * kRowBytes + ((lane_unit_ ^ (first_row_ % 8)) * kUnitBytes);
  }

  // Announces M tile `tile`, which Begin will go to: its rows are looked up while the steps of the
  // current one are copied, and their flat output pixels (-1: none) left in `pixels`.
  __device__ void Announce(int tile, int32_t* pixels) {
    first_ = tile * TileM + thread_;
    pixels_ = pixels;
    found_ = 0;
  }

  // One step of the look-up: what it loads the next one needs.
  __device__ void LookUp(const Rows& rows) {
    if (found_ == kLookUps) return;
    if (found_ == 0) {
#pragma unroll
      for (int i = 0; i < kLooked; ++i) listed_[i] = rows.List(Row(i));
    } else if (found_ == 1) {
#pragma unroll
      for (int i = 0; i < kLooked; ++i) placed_[i] = rows.Place(Row(i), listed_[i]);
    } else {
#pragma unroll
      for (int i = 0; i < kLooked; ++i) {
        Enter(rows, rows.Find(Row(i), placed_[i]), thread_ + i * kGatherThreads);
      }
    }
    ++found_;
  }

  // The whole look-up at once.
  __device__ void Finish(const Rows& rows) {
    while (found_ < kLookUps) LookUp(rows);
  }

  __device__ bool Found() const { return found_ == kLookUps; }

  // Goes to K step `step` of the announced tile, whose look-up is finished.
  __device__ void Begin(int step) {
    ptx::NamedBarrier(kGatherBarrier, kGatherThreads);
    current_ ^= 1;
    tap_ = unit_ = 0;
    if (step != 0) {  // seldom, and divisions take long
      const int first = step * kStepUnits;
      tap_ = period_ != 0 ? step % period_ : first / pixel_units_;
      unit_ = period_ != 0 ? step / period_ * kStepUnits : first - tap_ * pixel_units_;
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      base_[i] = table_.tile[current_].base[first_row_ + i * kRowStep];
    word_ = -1;
    Aim();
  }

  // The first unit of K of the current step.
  __device__ int unit() const { return tap_ * pixel_units_ + unit_; }

  // Starts the copies of the current step into the A tile at `shared`.
  __device__ void Copy(uint32_t shared) const {
    if (Ahead && pixel_units_ > kStepUnits) {
      CopyRows<true>(shared);
    } else {
      CopyRows<false>(shared);
    }
  }

  // Goes to the next step, and works out where it reads from before there is room for it.
  __device__ void Advance() {
    if (period_ == 0) {
      unit_ += kStepUnits;
      TakeWholePixels(&tap_, &unit_);
    } else if (++tap_ == period_) {
      tap_ = 0;
      unit_ += kStepUnits;
    }
    Aim();
  }

 private:
  static constexpr int kRowStep = kGatherThreads / kStepUnits;
  static constexpr int kRows = TileM / kRowStep;
  static constexpr int kLooked = TileM / kGatherThreads;  // rows that a thread looks up
  static constexpr int kLookUps = 3;
  static_assert(TileM % kRowStep == 0, "tile_m must be a multiple of 16");
  static_assert(TileM % kGatherThreads == 0, "every thread looks up as many rows");
  static_assert(kRowStep % 8 == 0, "a thread's rows must share one place in the swizzle");

  __device__ int Row(int i) const { return first_ + i * kGatherThreads; }

  // Row `r` of the announced tile. Its half of the table is not read before all synchronise in
  // Begin.
  __device__ void Enter(const Rows& rows, const OutputPixel& pixel, int r) {
    const TapWindow window = FindTapWindow<Plain>(p_, pixel);
    pixels_[r] = pixel.active ? rows.Flat(pixel) : -1;
    auto& tile = table_.tile[current_ ^ 1];
    tile.base[r] = window.base;
    tile.taps[0][r] = static_cast<uint32_t>(window.taps);
    tile.taps[1][r] = static_cast<uint32_t>(window.taps >> 32);
  }

  __device__ __forceinline__ void TakeWholePixels(int* tap, int* unit) const {
    while (*unit >= pixel_units_) {
      *unit -= pixel_units_;
      ++*tap;
    }
  }

  // Where this lane's unit of the step is: in the step's tap, or in one after it.
  __device__ void Aim() {
    int tap = tap_, unit = unit_ + lane_unit_;
    if (period_ == 0) TakeWholePixels(&tap, &unit);
    if (word_ != tap / 32) ReadTapBits(tap / 32);
    offset_ = table_.offset[min(tap, kMaxTaps - 1)] + unit;
    bit_ = unit < pixel_units_ ? 1u << tap % 32 : 0;
  }

  template <bool AheadToo>
  __device__ __forceinline__ void CopyRows(uint32_t shared) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      ptx::CopyIfAny16<AheadToo>(shared + target_ + i * kRowStep * kRowBytes,
                                 x_ + static_cast<uint64_t>(base_[i] + offset_) * kUnitBytes,
                                 taps_[i], bit_);
    }
  }

  __device__ void ReadTapBits(int word) {
    word_ = word;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = first_row_ + i * kRowStep;
      taps_[i] = word < kMaxTaps / 32 ? table_.tile[current_].taps[word][row] : 0;
    }
  }

  const ConvParams& p_;
  RowTable<TileM>& table_;
  const char* x_;
  int thread_, lane_unit_, first_row_;
  int pixel_units_, period_;  // period: steps of K that read the same channels; 0: in memory order
  int first_ = 0, found_ = 0, current_ = 0;
  int32_t* pixels_ = nullptr;
  typename Rows::Listed listed_[kLooked];
  typename Rows::Placed placed_[kLooked];
  uint32_t target_;
  int tap_ = 0, unit_ = 0;  // of the first unit of the current step, the same in all threads
  int word_ = -1;
  uint32_t base_[kRows], taps_[kRows];  // of a row that is copied: where, and 32 taps
  uint32_t offset_ = 0, bit_ = 0;       // of the current step
};

}  // namespace jaxsparse
