// The panel of a tile: the strips of one block of channels, written from either layout with
// padding, spread (lhs dilation) and conversion to float32 in the same pass.
#pragma once

#include <cstdint>

#include "cpu/core/scratch.h"
#include "cpu/kernels/pruned_conv/strips.h"
#include "cpu/tile/pruned/isa.h"

namespace jaxsparse {

class PrunedPanel {
 public:
  PrunedPanel(const PrunedArgs& args, const PrunedIsa& isa);
  // Takes a worker's share of the scratch; null bases only measure.
  void Take(ScratchCarver& carver);
  // Zeroes what no load ever writes. Once, before the first tile.
  void Clear();
  // Finds the input pixel of each place of the strips, for the tile at output (oy, ox) of an image.
  void MoveTo(int64_t image, int64_t oy, int64_t ox);
  // Writes the strips of `channels` channels from `channel` on.
  void Load(int64_t channel, int64_t channels);

  const float* data() const { return panel_; }
  int64_t last_window() const {
    return args_.block * stride_ + kSlack - args_.tile.vectors * kPrunedLanes;
  }

 private:
  static constexpr int64_t kSlack = kPrunedLanes * kPrunedVectors;
  // Pixels of a plane, a stride apart, and where they go.
  struct Run {
    int64_t place, from, count;
  };
  void AddRow(int64_t y, int64_t first, int64_t columns, int64_t place);
  void AddPlaces(int64_t y, int64_t first, int64_t columns, int64_t place);
  static int64_t Unspread(int64_t at, int64_t spread, int64_t size);
  void LoadPlanes(int64_t channel, int64_t channels);

  const PrunedArgs& args_;
  const PrunedIsa& isa_;
  int64_t strip_rows_, stride_;  // the largest number where they overflow: no scratch has that
  const char* image_ = nullptr;
  const char** sources_ = nullptr;  // of each place, channels last
  Run* runs_ = nullptr;             // channels first
  int64_t run_count_ = 0;
  char* zeros_ = nullptr;
  float* panel_ = nullptr;
};

}  // namespace jaxsparse
