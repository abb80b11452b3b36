// A tile: 128 slots whose rows need not lie together. Each slot knows where the generation before
// kept its row.
//
// Units of a tile are computed by one warp each. A bundle's are in bundle.cuh. A row that
// is in no bundle is read straight from memory, a lane four slots: four loads an entry.
#pragma once

#include "cuda/kernels/bounded_network/state.cuh"
#include "cuda/recorder/probe.cuh"
#include "cuda/tile/load/packed_rows.cuh"

namespace jaxsparse {

constexpr int kWideThreads = 256, kWideWarps = kWideThreads / 32;

// Where a lane finds the rows of its slots: lane, 32 + lane, 64 + lane and 96 + lane of the tile.
struct TileSources {
  const float* slot[kTileBlocks];

  // `source` names the slots that `state` holds them in; nullptr: the tile's own. Slots past
  // `count` hold anything.
  __device__ TileSources(const float* state, const int32_t* source, uint32_t tile, uint32_t count,
                         uint32_t widest) {
#pragma unroll
    for (int b = 0; b < kTileBlocks; ++b) {
      uint32_t from = tile * kTileSlots + b * kSlots + threadIdx.x % 32;
      if (source != nullptr && from < count) from = static_cast<uint32_t>(source[from]);
      slot[b] = state + StateOffset(from, 0, widest);
    }
  }
};

// Every kWideWarps-th of the rows [first, last) of a layer that has no bundles; `to` is the tile's
// state, its blocks of slots `block` apart.
template <typename Index>
__device__ void TileRows(const LayerView<Index>& view, uint32_t first, uint32_t last,
                         const TileSources& sources, float* to, int64_t block, float upper,
                         uint32_t* not_zero, uint32_t* not_upper) {
  SaturationProbe probe(upper);
  for (uint32_t u = first; u < last; u += kWideWarps) {
    float sum[kTileBlocks] = {};
    const uint32_t end = view.End(u);
    for (uint32_t e = view.Begin(u); e < end; e += 4) {
      const Quad quad = view.Load(e);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int64_t at = static_cast<int64_t>(quad.index[k]) * kSlots;
#pragma unroll
        for (int b = 0; b < kTileBlocks; ++b) {
          sum[b] = fmaf(quad.weight[k], sources.slot[b][at], sum[b]);
        }
      }
    }
    const float bias = __ldg(view.bias + u);
#pragma unroll
    for (int b = 0; b < kTileBlocks; ++b) {
      sum[b] = Bound(sum[b] + bias, upper);
      to[b * block + static_cast<int64_t>(u) * kSlots] = sum[b];
    }
    probe.See(sum);
  }
  probe.MergeLanes(not_zero, not_upper);
}

}  // namespace jaxsparse
