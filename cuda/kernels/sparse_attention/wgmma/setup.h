// From a call to what a kernel of one tile size needs: parameters and tensor maps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "cuda/core/launch.h"
#include "cuda/core/tensor_map.h"
#include "cuda/kernels/sparse_attention/args.h"
#include "cuda/kernels/sparse_attention/wgmma/params.cuh"

namespace jaxsparse {

// Sizes of a kernel: queries of a tile, keys of a tile, tiles that a CTA works on at a time.
struct AttentionTile {
  int rows, kv, streams;
};

inline ListParams MakeListParams(const AttentionMask& m) {
  ListParams p = {};
  p.counts = m.counts;
  p.blocks = m.blocks;
  p.slots = m.slots;
  p.words = m.words;
  p.word_rows = static_cast<int>(m.word_rows);
  p.rows = m.rows;
  p.columns = m.columns;
  p.block_q = m.block_q;
  p.block_kv = m.block_kv;
  p.row_words = static_cast<int>(CeilDiv(m.block_kv, 32));
  p.batch_stride = m.batch == 1 ? 0 : m.heads * m.rows;
  p.head_stride = m.heads == 1 ? 0 : m.rows;
  return p;
}

// Query tiles of a call.
inline int64_t AttentionItems(const AttentionArgs& a, int tile_rows) {
  return int64_t{a.batch} * a.heads * a.mask.rows * CeilDiv(a.mask.block_q, tile_rows);
}

inline AttentionParams MakeAttentionParams(const AttentionArgs& a, const AttentionTile& tile,
                                           int* counter) {
  const int64_t row_tiles = CeilDiv(a.mask.block_q, tile.rows);
  AttentionParams p = {};
  p.lists = MakeListParams(a.mask);
  p.head_items = MakeDivisor(a.mask.rows * row_tiles);
  p.row_tiles = MakeDivisor(row_tiles);
  p.heads = MakeDivisor(a.heads);
  p.group = MakeDivisor(a.heads / a.kv_heads);
  p.block_strips = MakeDivisor(a.mask.block_kv / kStripRows);
  p.items = static_cast<int>(AttentionItems(a, tile.rows));
  p.q_len = a.q_len;
  p.kv_len = a.kv_len;
  p.kv_heads = a.kv_heads;
  p.piece_rows = std::gcd(a.mask.block_kv, tile.kv);
  p.pieces = tile.kv / p.piece_rows;
  p.scale_log2 = a.scale * 1.4426950408889634f;
  p.v = a.v;
  p.out = a.out;
  p.lse = a.lse;
  p.counter = counter;
  return p;
}

// Boxes of 64 elements of depth and a run of positions of one head.
inline cudaError_t MakeAttentionMaps(const AttentionArgs& a, DType type, const AttentionTile& tile,
                                     AttentionMaps* maps) {
  const auto map_type =
      type == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const auto encode = [&](CUtensorMap* map, const void* base, int length, int heads, int depth,
                          int rows) {
    const int64_t shape[4] = {a.batch, length, heads, depth};
    return EncodeImageMap(map, map_type, 2, base, shape, {rows, 1, 1, 1, 128});
  };
  const int piece = std::gcd(a.mask.block_kv, tile.kv);
  cudaError_t status = encode(&maps->q, a.q, a.q_len, a.heads, a.depth, tile.rows);
  if (status == cudaSuccess) status = encode(&maps->k, a.k, a.kv_len, a.kv_heads, a.depth, piece);
  if (status == cudaSuccess) status = encode(&maps->v, a.v, a.kv_len, a.kv_heads, a.v_depth, piece);
  return status;
}

// CTAs of a persistent grid.
inline int AttentionCtas(const AttentionParams& p, const AttentionTile& tile, int64_t processors) {
  return static_cast<int>(std::min<int64_t>(processors, CeilDiv(p.items, tile.streams)));
}

}  // namespace jaxsparse
