// The grouped matrix product: the work of one call, shared by the workers of a pool.
//
// Floor: 2 * sorted rows * depth * outputs FLOPs at the machine's multiply-add rate; bytes are the
// gathered rows, each weight of a group that has rows once, the result once. With few rows a group
// the weights' bytes rule, and the weights are read in place. Tile: a strip of up to 12 gathered
// rows times a panel of output columns, over a block of the depth in registers. Pipeline: for each
// block of the depth, gather strips of a chunk -> (load a group of panels -> multiply every strip);
// store after the last. Without `scatter` the items are chunks of rows x ranges of
// columns, pulled from a counter. With `scatter` they are stripes of columns, each of which adds up
// all rows in their order: no two workers share an output, so no atomics, and the sum is always the
// same.
#pragma once

#include <cstdint>
#include <optional>

#include "cpu/core/scratch.h"
#include "cpu/core/work_counter.h"
#include "cpu/kernels/grouped_matmul/args.h"
#include "cpu/kernels/grouped_matmul/spans.h"
#include "cpu/kernels/grouped_matmul/variants.h"
#include "cpu/tile/ffn/isa.h"
#include "cpu/tile/matmul/panels.h"

namespace jaxsparse {

class GroupedMatmulJob {
 public:
  GroupedMatmulJob(const GroupedMatmulArgs& args, int64_t pool_workers);

  // Workspace that a call with these shapes needs with so many workers.
  static int64_t ScratchBytes(const GroupedMatmulArgs& args, int64_t workers);

  // 0 when the scratch is too small to run at all.
  int64_t workers() const { return workers_; }
  void Run(int64_t worker);

 private:
  struct WorkerScratch {
    float* strips;  // a block of the depth of a chunk's rows, or all of the depth of a few
    float* panels;  // [PanelGroup::StorageFloats]
    float* sums;
  };
  struct Strip {
    int64_t first, count, height;  // sorted rows
    const float* at;
  };

  struct Sums {
    int64_t first, count;   // sorted rows
    int64_t column, width;  // outputs
    float* at;
    int64_t stride;  // floats from row to row
  };

  static WorkerScratch TakeWorker(const GroupedShape& shape, ScratchCarver& carver);
  static float* TakeSums(const GroupedMatmulArgs& args, ScratchCarver& carver);
  WorkerScratch ScratchOf(int64_t worker) const;
  void Partition();
  void RunChunk(const RowChunk& chunk, int64_t first_column, int64_t last_column,
                const WorkerScratch& scratch) const;
  void RunColumns(const RowChunk& chunk, int64_t first_column, int64_t last_column,
                  const WorkerScratch& scratch) const;
  void RunFew(const RowChunk& chunk, int64_t first_column, int64_t last_column,
              const WorkerScratch& scratch) const;
  void RunStripe(int64_t first_column, int64_t last_column, const WorkerScratch& scratch) const;
  int64_t LoadStrips(const RowChunk& chunk, int64_t first_depth, int64_t depth, ProductShape tile,
                     float* storage, Strip* strips) const;
  void Write(const Sums& sums) const;
  void Store(const Sums& sums) const;
  void Add(const Sums& sums) const;
  void ClearRows(int64_t item) const;

  GroupedMatmulArgs args_;
  const ConvIsa& isa_;
  const MatmulIsa& tiles_;
  const FfnIsa& ffn_;
  ScratchCarver carver_;
  GroupSpans spans_;
  float* sums_;  // [out_rows, outputs]: where scattered rows are added up
  int64_t workers_ = 0;
  int64_t range_, ranges_, product_items_, clear_rows_;
  std::optional<WorkCounter> items_;
};

}  // namespace jaxsparse
