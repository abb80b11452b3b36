// A row's list, cut into strips of 16 positions: what a tile is gathered from.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/kernels/sparse_attention/wgmma/params.cuh"

namespace jaxsparse {

// Where 16 keys (or queries) of a tile come from and which of them count.
struct alignas(16) Strip {
  int start;       // the first one's position; past the last where there is none
  int words;       // of the first query row that holds the bits, or -1: all attend
  uint32_t valid;  // a bit per position
  uint32_t shift;  // of the bits in their word
};

struct ItemList {
  int64_t first;  // entry of the mask's lists
  int count;
};

__device__ __forceinline__ ItemList ListOf(const ListParams& m, int batch, int head, int row) {
  const int64_t line = int64_t{batch} * m.batch_stride + head * m.head_stride + row;
  return {line * m.columns, min(max(__ldg(m.counts + line), 0), m.columns)};
}

// The list's entry that this lane's strip of a tile comes from.
struct Entry {
  int block = -1, slot = -1, within = 0;  // within: strips of the block before this one
};

template <int Strips>
__device__ __forceinline__ Entry LoadEntry(const ListParams& m, const Divisor& block_strips,
                                           const ItemList& list, int tile, int lane) {
  Entry e;
  if (lane >= Strips) return e;
  const int at = block_strips.Quotient(tile * Strips + lane, &e.within);
  if (at >= list.count) return e;
  e.block = __ldg(m.blocks + list.first + at);
  e.slot = __ldg(m.slots + list.first + at);
  return e;
}

// False for what is not in the mask's range.
__device__ __forceinline__ bool IsListed(const ListParams& m, const Entry& e) {
  return e.block >= 0 && e.block < m.columns && e.slot >= -1 && e.slot < m.word_rows;
}

}  // namespace jaxsparse
