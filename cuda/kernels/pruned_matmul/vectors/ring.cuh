// The ring in shared memory through which a tile of x passes: chunks of inputs, boxes that TMA
// loads.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/core/mbarrier.cuh"

namespace jaxsparse {

inline constexpr int kVectorOutputs = 8;  // of a group
inline constexpr int kVectorWarps = 16;
inline constexpr int kVectorThreads = 32 * kVectorWarps;
inline constexpr int kVectorRows = 64;                     // of x, of a tile
inline constexpr int kVectorBoxBytes = kVectorRows * 128;  // what TMA loads at once
inline constexpr int kVectorBoxes = 4;                     // of a chunk of inputs
inline constexpr int kVectorSlotBytes = kVectorBoxes * kVectorBoxBytes;
inline constexpr int kVectorAhead = 4;          // steps of a warp's stream
inline constexpr int kVectorApart = 1;          // chunks between the warps
inline constexpr int kVectorStageBytes = 1024;  // of a warp: eight rows of results

template <typename T>
struct VectorConfig {
  static constexpr int kBytes = static_cast<int>(sizeof(T));
  static constexpr int kChunk = kVectorBoxes * 128 / kBytes;             // inputs
  static constexpr int kQuads = 8 / kBytes;                              // of columns, of a step
  static constexpr int kSlots = (kBytes == 4 ? 24 : 16) / kVectorBoxes;  // places have 16 bits
  static constexpr int kRingBytes = kSlots * kVectorSlotBytes;
  static constexpr int kStepBytes = 256 + 8 * kQuads;  // weights and places
  static constexpr int kStreamBytes = kVectorAhead * kStepBytes;
  static constexpr int kStage = kRingBytes + kVectorWarps * kStreamBytes;
  static constexpr int kBarriers = kStage + kVectorWarps * kVectorStageBytes;
  static constexpr int kSharedBytes = kBarriers + 2 * kSlots * 8;
};

// What the launcher adds to the arguments.
struct VectorLayout {
  int32_t chunks;  // of inputs
  int32_t slabs;   // of outputs; a tile serves one
  int32_t window;  // chunks that a step may reach back to, its own included
  int32_t ahead;   // chunks that are under way before they are read
  int32_t tiles;
};

// A place in the ring of slots, and how often the ring has been passed.
template <int kSlots>
struct VectorTurn {
  int slot = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void Next() {
    if (++slot == kSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

// The ring's barriers: a slot is full once its chunk lies there, empty once every warp is done
// with it.
template <typename T>
struct VectorBarriers {
  uint32_t base;
  __device__ __forceinline__ uint32_t Full(int slot) const { return base + slot * 8; }
  __device__ __forceinline__ uint32_t Empty(int slot) const {
    return base + (VectorConfig<T>::kSlots + slot) * 8;
  }
};

// The box at (column, row) of x; what lies outside arrives as zeros.
__device__ __forceinline__ void LoadVectorBox(uint32_t shared, const CUtensorMap* map, int column,
                                              int row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared),
      "l"(map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

// Starts chunk `number`, of all chunks of the block's tiles, on its way, once every warp is done
// with what lies in its slot.
template <typename T>
__device__ __forceinline__ void LoadVectorChunk(const CUtensorMap& map, const VectorLayout& layout,
                                                uint32_t ring, const VectorBarriers<T>& barriers,
                                                int number) {
  using Config = VectorConfig<T>;
  const int nth = number / layout.chunks, chunk = number - nth * layout.chunks;
  const int64_t tile = blockIdx.x + static_cast<int64_t>(nth) * gridDim.x;
  if (tile >= layout.tiles) return;
  const int turn = number / Config::kSlots, slot = number - turn * Config::kSlots;
  const int row = static_cast<int>(tile) / layout.slabs * kVectorRows;
  const uint32_t full = barriers.Full(slot), to = ring + slot * kVectorSlotBytes;
  ptx::BarrierWait(barriers.Empty(slot), turn % 2 ^ 1);
  ptx::BarrierArriveExpect(full, kVectorSlotBytes);
  for (int i = 0; i < kVectorBoxes; ++i) {
    LoadVectorBox(to + i * kVectorBoxBytes, &map,
                  chunk * Config::kChunk + i * (Config::kChunk / kVectorBoxes), row, full);
  }
}

}  // namespace jaxsparse
