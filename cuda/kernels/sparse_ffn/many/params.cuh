// What the kernels for many tokens know of a list.
#pragma once

#include <cstdint>

#include "cuda/core/launch.h"
#include "cuda/kernels/sparse_ffn/many/launch.h"

namespace jaxsparse {

constexpr uint32_t kWholeWarp = 0xFFFFFFFFu;

// A stage of the pipelines of both products.
constexpr int kStageBytes = 64 << 10;

// Lane 4 * g + q of a warp has the values of token g and of four rows of a block: those at places
// q, 4 + q, 8 + q and 12 + q, in two words. These are rows 2 * q, 2 * q + 1, 2 * q + 8 and 2 * q +
// 9 of an operand of the tensor cores. Their ids are next to each other.
constexpr int kLaneIds = 4;

// Names a row, counted from the start of its chunk: its distance from there in a panel of 128 bytes
// a row, where vectors of 16 bytes are exchanged by the row's remainder by 4. So a warp that reads
// two neighbouring vectors of rows of all four remainders has no bank conflict.
constexpr int kIdShift = 7;
__device__ __forceinline__ uint32_t RowId(int row) {
  return static_cast<uint32_t>(row << kIdShift | row % 4 << 5);
}
// Every bit that an id may have.
constexpr uint32_t kIdBits = 0xFFE0u;

// Half blocks that a list fills; it never passes its room, whatever the count says.
__device__ __forceinline__ int HalfBlocks(int count) {
  return (min(max(count, 0), kListMost) + 7) / 8;
}

inline int64_t ListGroups(int64_t rows) { return CeilDiv(rows, kListTokens); }
inline int64_t ListChunks(int64_t depth) { return CeilDiv(depth, kListChunk); }

}  // namespace jaxsparse
