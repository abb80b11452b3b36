// A feed-forward network on few tokens: the work of one call, shared by the workers of a pool.
//
// Floor: the bytes of the first matrix (with a gate: of the gate, and of the cache lines of w_up
// that hold an open column, or of the rows of w_up_t that are open), and of the rows of w_down that
// some token needs; each is read once. At 10 % open, at random places, 81 % of the lines of w_up
// hold an open column of float32.
// Item: a panel of columns of the first product, with its activation; then the lists of up to eight
// tokens; then a panel of columns of the result, over the listed rows. Between them all workers
// wait. Tokens whose rows are mostly the same take them together, zeros included: a row is then
// loaded once for all of them. A block of rows is taken by all tokens, and a panel's columns, while
// it is in the second-level cache.
#pragma once

#include <cstdint>
#include <memory>

#include "cpu/core/dtype.h"
#include "cpu/core/scratch.h"
#include "cpu/core/stage.h"
#include "cpu/tile/ffn/isa.h"

namespace jaxsparse {

constexpr int64_t kFfnMostTokens = 16;

struct FfnArgs {
  int64_t tokens, depth, hidden, outputs;
  DType type;
  bool squared;
  int64_t top_k;  // 0: all
  // nullptr: none. One of w_up and w_up_t, which is w_up transposed.
  const void *x, *w_up, *w_up_t, *w_gate, *w_down;
  void* y;
};

class FfnJob {
 public:
  FfnJob(const FfnArgs& args, int64_t pool_workers);

  // 0 where there is no memory.
  int64_t workers() const { return workers_; }
  void Run(int64_t worker);

 private:
  void Activate(int64_t panel);
  void List(int64_t group);
  void Sum(int64_t panel) const;
  void AddDense(const void* w, int64_t column, int64_t columns, float* sums, int64_t stride) const;
  void AddUp(int64_t column, int64_t columns, const float* gate, float* up) const;
  void DotUp(int64_t column, int64_t columns, const float* gate, float* up) const;
  void Carve(ScratchCarver& carver);

  const FfnArgs a_;
  const FfnIsa& isa_ = FfnIsaInUse();
  const int64_t up_panel_, down_panel_;
  int64_t workers_ = 0;
  float *x_ = nullptr, *h_ = nullptr, *values_ = nullptr;
  int32_t* rows_ = nullptr;
  uint8_t* some_ = nullptr;  // [groups, hidden]: rows that a token of the group needs
  int64_t found_[kFfnMostTokens] = {};
  bool together_[kFfnMostTokens / kFfnMostTogether] =
      {};  // a group has the list of its first token
  std::unique_ptr<std::byte[]> scratch_;
  Stage activations_, lists_, sums_;
};

}  // namespace jaxsparse
