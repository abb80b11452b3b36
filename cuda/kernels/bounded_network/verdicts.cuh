// What a layer through memory says of its slots, and which slots there are.
#pragma once

#include <cstdint>

#include "cuda/kernels/bounded_network/state.cuh"

namespace jaxsparse {

// What rules the two states out, a word for each block of slots.
struct BlockVerdicts {
  uint32_t *not_zero, *not_upper;
};

__device__ inline uint32_t TilesInUse(uint32_t count) {
  return (count + kTileSlots - 1) / kTileSlots;
}

// Which of a block's 32 slots are in use.
__device__ inline uint32_t SlotsInUse(uint32_t count, uint32_t block) {
  const uint32_t before = block * kSlots;
  return count >= before + kSlots ? ~0u : count > before ? (1u << (count - before)) - 1 : 0;
}

}  // namespace jaxsparse
