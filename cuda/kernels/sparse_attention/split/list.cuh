// A list of few queries, cut into strips of 16 keys, and the strips cut into splits.
#pragma once

#include "cuda/kernels/sparse_attention/mma/walk.cuh"
#include "cuda/kernels/sparse_attention/split/config.h"

namespace jaxsparse {

// Where 16 keys come from; what is not in the mask's range has none.
struct KeyStrip {
  int start = kNoColumn, slot = kUnlisted;
};

class KeyStrips {
 public:
  __device__ KeyStrips(const SplitArgs& args, int batch, int head) : mask_(args.attention.mask) {
    const int64_t line = static_cast<int64_t>(mask_.batch > 1 ? batch : 0) * mask_.heads +
                         (mask_.heads > 1 ? head : 0);
    first_ = line * mask_.rows * mask_.columns;  // queries of one row of blocks: the first
    const int count = min(max(__ldg(mask_.counts + line * mask_.rows), 0), mask_.columns);
    of_block_ = mask_.block_kv / kMaskUnit;
    strips_ = count * of_block_;  // 16 keys each, of 2^30 keys
    splits_ = max(min((strips_ + kSplitStrips - 1) / kSplitStrips, args.splits), 1);
  }

  // Splits that have work; one where there is none at all.
  __device__ int splits() const { return splits_; }

  // The strips [begin, end) of a split, shared out evenly.
  __device__ int Begin(int split) const {
    return static_cast<int>(static_cast<int64_t>(strips_) * split / splits_);
  }

  __device__ __forceinline__ KeyStrip At(int strip) const {
    const int entry = strip / of_block_, within = strip - entry * of_block_;
    const int block = __ldg(mask_.blocks + first_ + entry);
    const int slot = __ldg(mask_.slots + first_ + entry);
    const bool listed =
        block >= 0 && block < mask_.columns && slot >= kFullBlock && slot < mask_.word_rows;
    if (!listed) return {};
    return {block * mask_.block_kv + within * kMaskUnit, slot};
  }

 private:
  const AttentionMask& mask_;
  int64_t first_;
  int strips_, of_block_, splits_;
};

// The weight of each of several parts of a softmax, and their log-sum-exp: a part is normalized,
// and `lse` is its natural logarithm. -inf is a part of nothing.
struct PartWeights {
  float top = -INFINITY, total = 0.0f;

  __device__ void Raise(float lse) { top = fmaxf(top, lse); }
  __device__ float Weight(float lse) const { return expf(lse - (top == -INFINITY ? 0.0f : top)); }
  __device__ void Add(float weight) { total += weight; }
  __device__ float Inverse() const { return total == 0.0f ? 0.0f : 1.0f / total; }
  __device__ float Lse() const {
    return total == 0.0f ? -INFINITY : (top == -INFINITY ? 0.0f : top) + logf(total);
  }
};

}  // namespace jaxsparse
