// A product of one row, or of a few, with frozen weights: the work of one call, shared by the
// workers of a pool.
//
// An item is a part: a run of outputs. Their entries lie one after the other, so weights are read
// as a stream (cpu/tile/pruned/dots.h), and nothing of x is rewritten.
#pragma once

#include <cstdint>
#include <optional>

#include "contracts/enums.gen.h"
#include "cpu/core/work_ends.h"
#include "cpu/tile/pruned/isa.h"

namespace jaxsparse {

struct PrunedDotsArgs {
  int64_t rows, inputs, outputs, parts, entries;
  DType in_type, out_type;
  Activation activation;
  const void* x;            // [rows, inputs]
  const float* values;      // [entries]
  const uint16_t* columns;  // [entries]
  const int32_t* starts;    // [2, outputs]
  const int32_t* bounds;    // [parts + 1]: where each part's outputs begin
  const float* bias;        // nullptr: none
  void* out;                // [rows, outputs]
  void* scratch;
  int64_t scratch_bytes;
};

class PrunedDotsJob {
 public:
  PrunedDotsJob(const PrunedDotsArgs& args, int64_t pool_workers);
  PrunedDotsJob(const PrunedDotsJob&) = delete;
  // 0 when the scratch is too small to run at all.
  int64_t workers() const { return workers_; }
  void Run(int64_t worker);

 private:
  void RunPart(int64_t part) const;

  PrunedDotsArgs args_;
  const PrunedIsa& isa_;
  const float* x_ = nullptr;
  float* sums_ = nullptr;  // [rows, outputs]
  int64_t workers_ = 0;
  std::optional<WorkEnds> items_;
};

}  // namespace jaxsparse
