// a @ b, where a is mostly zero: the work of one call, shared by the workers of a pool.
//
// Floor: a multiply-add for each entry of a that is not zero and each column, of which each loads
// its vector; reading a. Item: up to 256 rows of a. Their lists are made once, then a panel of b of
// 64 columns at a time stays in the second-level cache while every row takes what it lists.
#pragma once

#include <cstdint>
#include <memory>

#include "cpu/core/dtype.h"
#include "cpu/core/work_counter.h"
#include "cpu/tile/ffn/isa.h"

namespace jaxsparse {

struct FfnProductArgs {
  int64_t rows, depth, outputs;
  DType type;
  const void *a, *b;
  void* out;
};

class FfnProductJob {
 public:
  FfnProductJob(const FfnProductArgs& args, int64_t pool_workers);

  // 0 where there is no memory for one worker.
  int64_t workers() const { return workers_; }
  void Run(int64_t worker);

 private:
  void RunRows(int64_t item, std::byte* scratch) const;

  const FfnProductArgs a_;
  const FfnIsa& isa_ = FfnIsaInUse();
  const int64_t rows_;  // of an item
  int64_t workers_ = 0, bytes_ = 0;
  std::unique_ptr<std::byte[]> scratch_;
  WorkCounter items_;
};

}  // namespace jaxsparse
