// What the gradient kernels of attention on Hopper get from their launcher. A kernel *owns* 64 rows
// a warpgroup of one side, keys (for dk and dv) or queries (for dq), and walks listed tiles of the
// *other* side.
#pragma once

#include <cuda.h>

#include "cuda/kernels/sparse_attention/wgmma/params.cuh"

namespace jaxsparse {

struct AttentionGradParams {
  ListParams lists;                                           // rows: blocks of the owned side
  Divisor head_items, row_tiles, heads, group, block_strips;  // heads: of the owned side
  int items;                                                  // tiles of owned rows
  int own_block, own_len, other_len;
  int item_heads;          // query heads whose lists an item walks
  int streams, tile_rows;  // 1 and 128: two warpgroups share their lists; 2 and 64
  int pieces, piece_rows;  // boxes of rows that fill a tile of the other side
  int query_heads, q_len;
  float scale_log2, scale;
  const float *lse, *delta;  // [batch, query_heads, q_len]
  void *gradient, *values;   // of k and v, or of q and nullptr
  float* sums;               // of dq, strip by strip (reduce/config.cuh), or nullptr
  int query_strips;          // of one batch and query head
  int* counter;              // 0 at the start: hands out items; or nullptr
};

// Owned: k and v, or q and gout; the other side's two follow.
struct AttentionGradMaps {
  CUtensorMap own[2], other[2];
};

}  // namespace jaxsparse
