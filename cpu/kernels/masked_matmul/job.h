// The product of masked matrices: the work of one call, shared by the workers of a pool.
//
// Floor: 2 * outputs * columns kept FLOPs at the machine's multiply-add rate; bytes are the kept
// entries of a once per group of panels, b once per range of rows, the result once. Tile: a strip
// of up to 6 rows that have something to do, condensed to the columns that one of them has, times a
// panel of outputs. So a 32x1 piece fills a tile as well as a 32x64 block does. The height follows
// the mask (cover.h). Pipeline: an item is a group of panels times a range of rows, in chunks whose
// sums stay in the second-level cache. For each block of the depth: load the panels, then per
// strip: condense -> for each panel keep the columns that it has -> multiply and add; after the
// last block mask and store. Items are pulled from a counter, for they differ in cost.
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
  // A group of panels times a range of rows.
  struct Item {
    int64_t list;
    int64_t first_column, last_column;
    int64_t first_row, last_row;
  };
  // Some of the rows that have something to do, and their sums: [panel][height][panel.step].
  struct Strip {
    const int64_t* rows;
    int64_t count, height;
    float* sums;
  };
  struct WorkerScratch {
    float* panels;       // [PanelGroup::StorageFloats]
    uint8_t* has;        // [panels of a group][block]: whether the panel has anything in the row
    int32_t* kept;       // [panels of a group][block]: the rows in which it has
    int64_t* kept_size;  // [panels of a group]
    int32_t* strip_at;   // [block]: the strip's columns that a panel has
    int32_t* panel_at;   // [block]
    int64_t* rows;       // [kMaxChunk]: those that have something to do
    Strip* strips;       // [kMaxChunk]
    float* sums;         // [SumFloats]
  };

  static WorkerScratch TakeWorker(const MaskedMatmulArgs& args, ScratchCarver& carver);
  void Partition();
  void RunItem(const Item& item, CondensedStrip& loaded, const WorkerScratch& scratch) const;
  int64_t ListStrips(const Item& item, const WorkerScratch& scratch) const;
  void MaskPanels(const Item& item, int64_t first_depth, int64_t depth, const PanelGroup& panels,
                  const WorkerScratch& scratch) const;
  bool HasWork(const Item& item, int64_t row) const;
  void MultiplyPanels(const Item& item, const Strip& strip, const PanelGroup& panels,
                      const CondensedStrip& loaded, bool adds, const WorkerScratch& scratch) const;
  bool Wants(const Item& item, const Strip& strip, const ColumnPanel& panel) const;
  void Multiply(const Strip& strip, const ColumnPanel& panel, float* sums, int64_t index,
                const CondensedStrip& loaded, bool adds, const WorkerScratch& scratch) const;
  int64_t Intersect(int64_t index, const CondensedStrip& loaded,
                    const WorkerScratch& scratch) const;
  void Store(const Item& item, const Strip& strip, const PanelGroup& panels) const;
  void Clear(int64_t list, int64_t row, int64_t first, int64_t last) const;

  MaskedMatmulArgs args_;
  const ConvIsa& isa_;
  const MatmulIsa& tiles_;
  ScratchCarver carver_;
  int64_t workers_ = 0;
  ProductShape shape_;
  int64_t group_, groups_, range_, ranges_, chunk_;
  std::optional<WorkCounter> items_;
};

}  // namespace jaxsparse
