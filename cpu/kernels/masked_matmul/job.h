// The product of masked matrices: the work of one call, shared by the workers of a pool.
//
// Floor: 2 * outputs * columns kept FLOPs at the machine's multiply-add rate; bytes are the kept
// entries of a once per group of panels, b once per range of rows, the result once. Tile: a strip
// of up to 6 rows that have something to do, condensed to the columns that one of them has, times a
// panel of outputs. So a 32x1 piece fills a tile as well as a 32x64 block does. The height follows
// the mask (cover.h). Pipeline: an item is a group of panels times a range of rows:
// load the panels, then per strip: condense -> for each panel keep the columns that it has ->
// multiply -> mask and store. Items are pulled from a counter, for they differ in cost.
#pragma once

#include <cstdint>
#include <optional>

#include "cpu/core/scratch.h"
#include "cpu/core/work_counter.h"
#include "cpu/kernels/masked_matmul/args.h"
#include "cpu/kernels/masked_matmul/cover.h"
#include "cpu/kernels/masked_matmul/strip.h"
#include "cpu/tile/matmul/panels.h"

namespace jaxsparse {

class MaskedMatmulJob {
 public:
  MaskedMatmulJob(const MaskedMatmulArgs& args, int64_t pool_workers);

  // Workspace that a call with these shapes needs with so many workers.
  static int64_t ScratchBytes(const MaskedMatmulArgs& args, int64_t workers);

  // 0 when the scratch is too small to run at all.
  int64_t workers() const { return workers_; }
  void Run(int64_t worker);

 private:
  struct WorkerScratch {
    float* panels;       // [PanelGroup::StorageFloats]
    uint8_t* has;        // [panels of a group][depth]: whether the panel has anything in the row
    int32_t* kept;       // [panels of a group][depth]: the rows in which it has
    int64_t* kept_size;  // [panels of a group]
    int32_t* strip_at;   // [depth]: the strip's columns that a panel has
    int32_t* panel_at;   // [depth]
  };
  struct Tile {
    int64_t list;
    const int64_t* rows;
    int64_t count, height;
  };

  static WorkerScratch TakeWorker(const MaskedMatmulArgs& args, ScratchCarver& carver);
  void Partition();
  void RunItem(int64_t item, CondensedStrip& strip, const WorkerScratch& scratch) const;
  void MaskPanels(int64_t list, const PanelGroup& panels, const WorkerScratch& scratch) const;
  bool HasWork(int64_t list, int64_t row, int64_t first, int64_t last) const;
  void Multiply(const Tile& tile, const ColumnPanel& panel, int64_t index,
                const CondensedStrip& strip, const WorkerScratch& scratch) const;
  int64_t Intersect(int64_t index, const CondensedStrip& strip, const WorkerScratch& scratch) const;
  void Store(const Tile& tile, const ColumnPanel& panel, float* sums) const;
  void Clear(int64_t list, int64_t row, int64_t first, int64_t last) const;

  MaskedMatmulArgs args_;
  const ConvIsa& isa_;
  const MatmulIsa& tiles_;
  ScratchCarver carver_;
  int64_t workers_ = 0;
  ProductShape shape_;
  int64_t group_, groups_, range_, ranges_;
  std::optional<WorkCounter> items_;
};

}  // namespace jaxsparse
