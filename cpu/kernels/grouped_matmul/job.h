// The grouped matrix product: the work of one call, shared by the workers of a pool.
//
// Floor: 2 * sorted rows * depth * outputs FLOPs at the machine's multiply-add rate; bytes are the
// gathered rows, each weight of a group that has rows once, the result once. With few rows a group
// the weights' bytes rule. Tile: a strip of up to 12 gathered rows times a panel of output columns,
// over the whole depth in registers. Pipeline: gather strips of a chunk -> (load a group of panels
// -> multiply every strip -> store). Without `scatter` the items are chunks of rows x ranges of
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
    float* strips;  // [chunk rows + 12][depth, in blocks]
    float* panels;  // [PanelGroup::StorageFloats]
  };
  struct Strip {
    int64_t first, count, height;  // sorted rows
    const float* at;
  };

  static WorkerScratch TakeWorker(const GroupedShape& shape, ScratchCarver& carver);
  static float* TakeSums(const GroupedMatmulArgs& args, ScratchCarver& carver);
  WorkerScratch ScratchOf(int64_t worker) const;
  void Partition();
  void RunChunk(const RowChunk& chunk, int64_t first_column, int64_t last_column,
                const WorkerScratch& scratch) const;
  void RunStripe(int64_t first_column, int64_t last_column, const WorkerScratch& scratch) const;
  Strip LoadRows(int64_t first, int64_t count, int vectors, float* storage) const;
  void Multiply(const Strip& strip, const ColumnPanel& panel) const;
  void Store(const Strip& strip, const ColumnPanel& panel, float* sums, int64_t stride) const;
  void Add(const Strip& strip, const ColumnPanel& panel, const float* sums, int64_t stride) const;
  void ClearRows(int64_t item) const;

  GroupedMatmulArgs args_;
  const ConvIsa& isa_;
  const MatmulIsa& tiles_;
  ScratchCarver carver_;
  GroupSpans spans_;
  float* sums_;  // [out_rows, outputs]: where scattered rows are added up
  int64_t workers_ = 0;
  int64_t range_, ranges_, product_items_, clear_rows_;
  std::optional<WorkCounter> items_;
};

}  // namespace jaxsparse
