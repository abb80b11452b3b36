// Questions that kernels ask of a block mask.
#pragma once

#include "cuda/kernels/masked_matmul/launch.h"

namespace jaxsparse {

// The words of the blocks that hold row `row` of matrix `list`. Sides are below 2^32.
__device__ __forceinline__ const uint32_t* MaskRow(const BlockBits& bits, int64_t list,
                                                   int64_t row) {
  const uint32_t line = static_cast<uint32_t>(row) / static_cast<uint32_t>(bits.row_size);
  return bits.words + ((bits.lists == 1 ? 0 : list) * bits.rows + line) * bits.row_words;
}

__device__ __forceinline__ bool HasBlock(const uint32_t* words, uint32_t block) {
  return (__ldg(words + block / 32) >> (block % 32)) & 1;
}

// Whether the entry counts.
__device__ __forceinline__ bool HasEntry(const BlockBits& bits, int64_t list, int64_t row,
                                         int64_t column) {
  if (bits.words == nullptr) return true;
  return HasBlock(MaskRow(bits, list, row),
                  static_cast<uint32_t>(column) / static_cast<uint32_t>(bits.col_size));
}

}  // namespace jaxsparse
