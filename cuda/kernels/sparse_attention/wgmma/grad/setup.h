// From a call to what the gradient kernels need: parameters and tensor maps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "cuda/core/launch.h"
#include "cuda/core/tensor_map.h"
#include "cuda/kernels/sparse_attention/args.h"
#include "cuda/kernels/sparse_attention/wgmma/grad/params.cuh"
#include "cuda/kernels/sparse_attention/wgmma/setup.h"

namespace jaxsparse {

// One side of a call.
struct AttentionSide {
  const void *first, *second;  // [batch, length, heads, depth]
  int length, heads, block;
};

inline AttentionSide KeySide(const AttentionGradArgs& a) {
  const AttentionArgs& f = a.forward;
  return {f.k, f.v, f.kv_len, f.kv_heads, f.mask.block_kv};
}
inline AttentionSide QuerySide(const AttentionGradArgs& a) {
  const AttentionArgs& f = a.forward;
  return {f.q, a.gout, f.q_len, f.heads, f.mask.block_q};
}

// Whether two warpgroups own 128 rows of a block together.
inline bool SharesLists(const AttentionSide& own) { return own.block % 128 == 0; }

// Items of the kernel that owns `own`; `m`: its lists.
inline int64_t AttentionGradItems(const AttentionGradArgs& a, const AttentionMask& m,
                                  const AttentionSide& own) {
  const int64_t parts = CeilDiv(own.block, SharesLists(own) ? 128 : 64);
  return int64_t{a.forward.batch} * own.heads * m.rows * parts;
}

// `keys`: the kernel that owns keys. `tile`: rows of the other side that it takes at a time.
inline AttentionGradParams MakeAttentionGradParams(const AttentionGradArgs& a, bool keys, int tile,
                                                   int* counter) {
  const AttentionArgs& f = a.forward;
  const AttentionMask& m = keys ? a.transposed : f.mask;
  const AttentionSide own = keys ? KeySide(a) : QuerySide(a);
  const AttentionSide other = keys ? QuerySide(a) : KeySide(a);
  AttentionGradParams p = {};
  p.streams = SharesLists(own) ? 1 : 2;
  p.tile_rows = SharesLists(own) ? 128 : 64;
  const int64_t parts = CeilDiv(own.block, p.tile_rows);
  p.lists = MakeListParams(m);
  p.head_items = MakeDivisor(m.rows * parts);
  p.row_tiles = MakeDivisor(parts);
  p.heads = MakeDivisor(own.heads);
  p.group = MakeDivisor(f.heads / f.kv_heads);
  p.block_strips = MakeDivisor(other.block / kStripRows);
  p.items = static_cast<int>(AttentionGradItems(a, m, own));
  p.own_block = own.block;
  p.own_len = own.length;
  p.other_len = other.length;
  p.item_heads = keys ? f.heads / f.kv_heads : 1;
  p.piece_rows = std::gcd(other.block, tile);
  p.pieces = tile / p.piece_rows;
  p.query_heads = f.heads;
  p.q_len = f.q_len;
  p.scale_log2 = f.scale * 1.4426950408889634f;
  p.scale = f.scale;
  p.lse = f.lse;
  p.delta = a.delta;
  p.gradient = keys ? a.dk : a.dq;
  p.values = keys ? a.dv : nullptr;
  p.counter = counter;
  return p;
}

// Boxes of 64 elements of depth and a run of positions of one head.
inline cudaError_t MakeAttentionGradMaps(const AttentionGradArgs& a, DType type, bool keys,
                                         int piece_rows, AttentionGradMaps* maps) {
  const auto map_type =
      type == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const auto encode = [&](CUtensorMap(&to)[2], const AttentionSide& side, int rows) {
    const int64_t shape[4] = {a.forward.batch, side.length, side.heads, a.forward.depth};
    const ImageBox box = {rows, 1, 1, 1, 128};
    const cudaError_t status = EncodeImageMap(&to[0], map_type, 2, side.first, shape, box);
    if (status != cudaSuccess) return status;
    return EncodeImageMap(&to[1], map_type, 2, side.second, shape, box);
  };
  const AttentionSide own = keys ? KeySide(a) : QuerySide(a);
  const cudaError_t status = encode(maps->own, own, 64);
  if (status != cudaSuccess) return status;
  return encode(maps->other, keys ? QuerySide(a) : KeySide(a), piece_rows);
}

inline int AttentionGradCtas(const AttentionGradParams& p, int64_t processors) {
  return static_cast<int>(std::min<int64_t>(processors, CeilDiv(p.items, p.streams)));
}

}  // namespace jaxsparse
