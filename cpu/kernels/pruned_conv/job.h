// A product or a convolution with frozen weights: the work of one call, shared by the workers of a
// pool.
//
// Floor: bytes of x and of the result once, one multiply-add an entry and pixel
// (cpu/tile/pruned/rows.h). An item is a tile of pixels and a part of the rows. For each block
// of channels the worker loads a panel that stays in the first-level cache
// (cpu/kernels/pruned_conv/panel.h) and adds it to the sums of every row of its part, which lie in
// the second-level cache; then the sums become pixels. Entries lie in the order in which they are
// read, by block and row: the weights of a network come from memory at every call, and a stream is
// prefetched. Parts are balanced by entries.
#pragma once

#include <cstdint>
#include <optional>

#include "cpu/core/scratch.h"
#include "cpu/core/work_ends.h"
#include "cpu/kernels/pruned_conv/panel.h"

namespace jaxsparse {

class PrunedJob {
 public:
  PrunedJob(const PrunedArgs& args, int64_t pool_workers);
  PrunedJob(const PrunedJob&) = delete;
  // 0 when the scratch is too small to run at all.
  int64_t workers() const { return workers_; }
  void Run(int64_t worker);

 private:
  struct Worker {
    PrunedPanel panel;
    int32_t* slots;  // of each row of the part, in the visiting order
    int32_t* units;  // 16 channels that lie together in the sums
    int32_t* found;  // [units of the result] -> place in `units`, or -1
    float* sums;
  };
  struct Part {
    int64_t first, count, units;
  };
  // The first place of a tile in the bands side by side.
  struct Corner {
    int64_t image, y, x;
  };
  // A place of a tile: its row and column there, its band and the column in that.
  struct Place {
    int64_t row, column, band, x;
  };
  Worker Take(ScratchCarver& carver) const;
  Part PartOf(int64_t part, int32_t* slots, int32_t* units, int32_t* found) const;
  void RunItem(int64_t item, Worker& worker) const;
  void Multiply(const Part& part, int64_t block, const Worker& worker) const;
  Place FirstPlace(int64_t row, const Corner& at) const;
  bool PixelsOf(Place& place, const Corner& at, char** pixels) const;
  void StorePixels(const Part& part, const Worker& worker, const Corner& at) const;
  void StoreUnit(int64_t unit, const float* sums, char* const* pixels) const;
  void StorePlanes(int64_t unit, const float* sums, const Corner& at) const;
  int64_t out_units() const { return (args_.geometry.out_c + kPrunedLanes - 1) / kPrunedLanes; }
  int64_t sums_stride() const { return args_.tile.vectors * kPrunedLanes; }

  PrunedArgs args_;
  const PrunedIsa& isa_;
  int64_t most_units_ = 0, workers_ = 0;
  std::optional<WorkEnds> items_;
};

}  // namespace jaxsparse
