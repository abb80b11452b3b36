// Block-sparse attention: the work of one call, shared by the workers of a pool.
//
// Floor: 2 * (depth + v_depth) multiply-adds a kept score at the machine's rate, and an
// exponential. Tile: 12 rows (6 with 16 registers) of a row of blocks times up to 128 keys,
// gathered from the blocks that its list names; the scores stay in the first-level cache, their
// sums in the second. Pipeline: an item is a row of blocks of a head: load the queries as strips,
// then gather 128 keys and values -> per strip: multiply -> softmax against the running maximum ->
// multiply and add. Blocks of 16 keys fill a tile as well as those of 128. Items are pulled, for
// lists differ.
#pragma once

#include <cstdint>
#include <memory>

#include "cpu/core/work_counter.h"
#include "cpu/kernels/sparse_attention/args.h"
#include "cpu/kernels/sparse_attention/strips.h"

namespace jaxsparse {

class AttentionJob {
 public:
  AttentionJob(const AttentionArgs& args, int64_t pool_workers);

  // 0 where there is no memory for one worker.
  int64_t workers() const { return workers_; }
  void Run(int64_t worker);

 private:
  struct Worker;
  void RunRow(int64_t item, Worker& w) const;

  const AttentionArgs args_;
  StripProducts products_;
  int64_t workers_ = 0, bytes_ = 0;
  std::unique_ptr<std::byte[]> scratch_;
  WorkCounter items_;
};

}  // namespace jaxsparse
