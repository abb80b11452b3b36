// The tile that a call takes: the same answer in every block, from the counts that the index left.
#pragma once

#include "cuda/kernels/masked_matmul/strips.h"

namespace jaxsparse {

__device__ __forceinline__ float SumOverWarp(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

// What tiles of one height cost for each group of columns, summed over the rows.
__device__ __forceinline__ float RowCost(const StripParams& p, bool wide) {
  const int tiles = p.index.lists * p.index.tall_tiles << wide;
  const int box = wide ? kWideCost : kTallCost;
  const int gather = wide ? kWideGatherCost : kTallGatherCost;
  const int run = wide ? kWideRunCost : kTallRunCost;
  float cost = 0.0f;
  for (int i = threadIdx.x % 32; i < tiles; i += 32) {
    const int slabs = p.index.slabs[wide][i];
    cost += static_cast<float>(slabs) * (p.boxes ? box : slabs == p.slabs ? run : gather);
  }
  return SumOverWarp(cost);
}

// Groups of columns that a tile multiplies, on average.
__device__ __forceinline__ float Groups(const StripParams& p, bool wide) {
  const int blocks = wide ? kWideBlocks : kTallBlocks;
  if (p.index.live_blocks[wide] == nullptr) {
    return static_cast<float>((p.column_blocks + blocks - 1) / blocks);
  }
  const int tiles = p.index.out_lists * p.index.tall_tiles << wide;
  float groups = 0.0f;
  for (int i = threadIdx.x % 32; i < tiles; i += 32) {
    groups += static_cast<float>((p.index.live_blocks[wide][i] + blocks - 1) / blocks);
  }
  return SumOverWarp(groups) / static_cast<float>(tiles);
}

// Whether wide tiles cover the masks for less. All lanes of a warp call this.
__device__ __forceinline__ bool TakesWide(const StripParams& p) {
  if (p.tile != StripChoice::kAuto) return p.tile == StripChoice::kWide;
  return RowCost(p, true) * Groups(p, true) < RowCost(p, false) * Groups(p, false);
}

}  // namespace jaxsparse
