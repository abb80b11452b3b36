// The gradients of block-sparse attention: the work of one call, shared by the workers of a pool.
//
// Floor: five products of the kept scores where the probabilities are computed once; here seven, in
// two kinds of items that share nothing, so that no sum is shared either: a row of blocks of
// queries makes its dq, a column of blocks of keys its dk and dv, over the query heads that read
// it, in order. Tile and pipeline as in forward.h: rows are queries and columns keys, or the other
// way round. delta = sum(gout * out) - glse is computed where a query is loaded.
#pragma once

#include <cstdint>
#include <memory>

#include "cpu/core/work_counter.h"
#include "cpu/kernels/sparse_attention/args.h"
#include "cpu/kernels/sparse_attention/strips.h"

namespace jaxsparse {

class AttentionGradJob {
 public:
  AttentionGradJob(const AttentionGradArgs& args, int64_t pool_workers);

  // 0 where there is no memory for one worker.
  int64_t workers() const { return workers_; }
  void Run(int64_t worker);

 private:
  struct Worker;
  // One head of a row of blocks: the rows' tokens, and the sources of the columns.
  struct Row {
    int64_t b, head, first, count;
    const BlockLists* lists;
    int64_t block;
  };

  TokenSource Tokens(const void* at, bool of_queries, int64_t b, int64_t head, int64_t depth) const;
  void LoadStats(const Row& row, int64_t token, float* lse, float* delta, Worker& w) const;
  void RunQueries(int64_t item, Worker& w) const;
  void RunKeys(int64_t item, Worker& w) const;
  void AddColumns(const Row& row, Worker& w) const;

  const AttentionGradArgs args_;
  StripProducts products_;
  float cap_, score_scale_;  // of the products, which come divided by the cap
  int64_t key_items_, workers_ = 0, bytes_ = 0;
  std::unique_ptr<std::byte[]> scratch_;
  WorkCounter items_;
};

}  // namespace jaxsparse
