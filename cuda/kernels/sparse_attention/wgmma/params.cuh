// What the attention kernel on Hopper gets from its launcher.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/core/divisor.h"

namespace jaxsparse {

// Keys are listed to a tile in strips of 16: every block is a whole number of them.
inline constexpr int kStripRows = 16;

// The lists of a mask, and how a query tile finds its row in them.
struct ListParams {
  const int* counts;
  const int* blocks;
  const int* slots;
  const uint32_t* words;
  int word_rows, rows, columns, block_q, block_kv, row_words;  // words of a row of a block
  int batch_stride, head_stride;  // rows of lists between batches and heads: 0 where shared
};

struct AttentionParams {
  ListParams lists;
  Divisor head_items, row_tiles, heads, group, block_strips;  // group: query heads of a kv head
  int items;                                                  // query tiles of the call
  int q_len, kv_len, kv_heads, pieces, piece_rows;            // boxes of rows that fill a tile
  float scale_log2;
  const void* v;
  void* out;
  float* lse;    // may be nullptr
  int* counter;  // 0 at the start: hands out the tiles after the first of each worker; or nullptr
};

struct AttentionMaps {
  CUtensorMap q, k, v;
};

}  // namespace jaxsparse
