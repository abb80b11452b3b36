// The rows of the tiles of the mma.sync engine: looked up while the products of the tile before go
// on, a step of the look-up for a step of K, so that what one loads has come when the next needs
// it.
#pragma once

#include "cuda/kernels/masked_conv/mma/params.h"
#include "cuda/tile/conv/tap_window.cuh"

namespace jaxsparse {

// Of `Slots` tiles: where each tap reads, and where the result goes.
template <int TileM, int Slots>
struct MmaRows {
  static constexpr int kTileM = TileM;
  struct Tile {
    uint2 window[2][TileM];  // the base, in pixels; 32 taps
    int32_t pixel[TileM];    // -1: none
  } tile[Slots];
  uint32_t offset[kMaxTaps];  // TapOffset of every tap

  __device__ void FillOffsets(const ConvParams& p) {
    static_assert(kMmaThreads >= kMaxTaps);
    const int taps = p.kernel_h * p.kernel_w;
    const int t = threadIdx.x;
    if (t < kMaxTaps) offset[t] = t < taps ? TapOffset(p, t) : 0;
  }
};

template <class Rows>
class MmaLookUp {
 public:
  __device__ MmaLookUp(const ConvParams& p, Rows& table) : p_(p), table_(table) {}

  __device__ void Begin(int m_tile, int slot) {
    row_ = m_tile * Rows::kTileM + threadIdx.x;
    slot_ = slot;
    found_ = threadIdx.x < Rows::kTileM ? 0 : kSteps;
  }

  __device__ __forceinline__ void Step(const PixelRows<false>& rows) {
    if (found_ == kSteps) return;
    if (found_ == 0) listed_ = rows.List(row_);
    if (found_ == 1) placed_ = rows.Place(row_, listed_);
    if (found_ == 2) Enter(rows, rows.Find(row_, placed_));
    ++found_;
  }

  // All of it; the threads must meet before they read.
  __device__ __forceinline__ void Finish(const PixelRows<false>& rows) {
    while (found_ != kSteps) Step(rows);
  }

 private:
  static constexpr int kSteps = 3;
  static_assert(Rows::kTileM <= kMmaThreads, "a thread looks up one row");

  __device__ void Enter(const PixelRows<false>& rows, const OutputPixel& pixel) {
    const TapWindow window = FindTapWindow(p_, pixel);
    auto& tile = table_.tile[slot_];
    tile.pixel[threadIdx.x] = pixel.active ? rows.Flat(pixel) : -1;
    tile.window[0][threadIdx.x] = {window.base, static_cast<uint32_t>(window.taps)};
    tile.window[1][threadIdx.x] = {window.base, static_cast<uint32_t>(window.taps >> 32)};
  }

  const ConvParams& p_;
  Rows& table_;
  int row_ = 0, slot_ = 0, found_ = kSteps;
  PixelRows<false>::Listed listed_;
  PixelRows<false>::Placed placed_;
};

}  // namespace jaxsparse
