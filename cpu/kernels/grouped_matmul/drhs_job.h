// The gradient of the grouped product's weights: the work of one call, shared by the workers of a
// pool.
//
// Floor: 2 * sorted rows * depth * outputs FLOPs; bytes are the rows of both operands once and the
// result once, which rules with few rows a group. Tile: 12 columns of lhs x a panel of outputs,
// summed over the rows of a group. Pipeline: an item is a slice of the depth of one group. Per
// block of rows: load the slice of lhs and some columns of gy, contiguous and in float32, then
// multiply; the sums of the columns are rounded once. An output belongs to one item, which adds its
// rows in order: no atomics.
#pragma once

#include <cstdint>
#include <optional>

#include "cpu/core/scratch.h"
#include "cpu/core/work_counter.h"
#include "cpu/kernels/grouped_matmul/args.h"
#include "cpu/kernels/grouped_matmul/spans.h"
#include "cpu/tile/conv/isa.h"

namespace jaxsparse {

class GroupedDrhsJob {
 public:
  GroupedDrhsJob(const GroupedDrhsArgs& args, int64_t pool_workers);

  static int64_t ScratchBytes(const GroupedShape& shape, int64_t workers);

  // 0 when the scratch is too small to run at all.
  int64_t workers() const { return workers_; }
  void Run(int64_t worker);

 private:
  struct WorkerScratch {
    const float** x_rows;   // [block]
    const float** gy_rows;  // [block]
    float* x;               // [block][slice]
    float* gy;              // [block][columns]
    float* sums;            // [slice][columns]
  };

  static WorkerScratch TakeWorker(ScratchCarver& carver);
  WorkerScratch ScratchOf(int64_t worker) const;
  void RunSlice(int64_t group, int64_t first_depth, int64_t last_depth,
                const WorkerScratch& scratch) const;
  int64_t LoadBlock(int64_t first, int64_t count, int64_t first_depth, int64_t depth,
                    int64_t* gy_of, const WorkerScratch& scratch) const;
  void LoadColumns(const int64_t* gy_of, int64_t count, int64_t first, int64_t columns,
                   const WorkerScratch& scratch) const;
  void AddBlock(int64_t count, int64_t depth, int64_t columns, const WorkerScratch& scratch) const;

  GroupedDrhsArgs args_;
  const ConvIsa& isa_;
  ScratchCarver carver_;
  GroupSpans spans_;
  int64_t workers_ = 0;
  int64_t slices_;
  std::optional<WorkCounter> items_;
};

}  // namespace jaxsparse
