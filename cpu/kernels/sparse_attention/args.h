// What the handlers hand to attention on the CPU. No FFI headers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/core/dtype.h"

namespace jaxsparse {

constexpr int64_t kMostBlockRows = 256;  // the contract's

// The blocks that count, listed for each row of blocks: rows are queries and columns keys, or the
// other way round (`turned`).
struct BlockLists {
  const int32_t* counts;  // [batch, heads, rows]
  const int32_t* blocks;  // [batch, heads, rows, columns]
  const int32_t* slots;   // as blocks; -1: the whole block
  int64_t batch, heads;   // 1: shared
  int64_t rows, columns;
  int64_t row_block, column_block;  // entries of a block
  bool turned;

  int64_t RowAt(int64_t b, int64_t head, int64_t row) const {
    return ((batch == 1 ? 0 : b) * heads + (heads == 1 ? 0 : head)) * rows + row;
  }
};

// Bits of the blocks that count in part: [slots, block_q, row_words], little-endian along the keys.
struct BlockWords {
  const uint32_t* at;
  int64_t slots, block_q, row_words;

  const uint32_t* Row(int64_t slot, int64_t q) const {
    return at + (slot * block_q + q) * row_words;
  }
};

// [batch or 1, heads or 1, queries or 1, keys or 1]; strides in elements, 0 where broadcast.
struct BiasArray {
  const void* at;  // null: none
  DType type;
  int64_t batch_stride, head_stride, q_stride, kv_stride;
};

struct AttentionShape {
  int64_t batch, q_len, kv_len, heads, kv_heads, depth, v_depth;

  int64_t group() const { return heads / kv_heads; }
};

struct AttentionArgs {
  AttentionShape shape;
  DType type;
  float scale, soft_cap;  // soft_cap 0: none
  const void *q, *k, *v;  // [batch, q_len, heads, depth], [batch, kv_len, kv_heads, ...]
  const float* slopes;    // [heads], null: none
  BiasArray bias;
  BlockLists by_query;
  BlockWords words;
  void* out;   // [batch, q_len, heads, v_depth]
  float* lse;  // [batch, heads, q_len]
};

struct AttentionGradArgs {
  AttentionArgs forward;  // out and lse are read
  BlockLists by_key;
  const void* gout;   // as out
  const float* glse;  // as lse, null: 0
  void *dq, *dk, *dv;
};

}  // namespace jaxsparse
