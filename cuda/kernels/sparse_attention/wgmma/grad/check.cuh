// Masked tiles. Their bits are put in order, and NaN and Inf are taken out of the operand whose
// rows are summed up: a probability of 0 does not hide them. What attends such a row gets NaN
// another way, by a NaN that reaches the scores or products of that row alone.
#pragma once

#include "cuda/kernels/sparse_attention/wgmma/check.cuh"
#include "cuda/kernels/sparse_attention/wgmma/grad/config.cuh"
#include "cuda/kernels/sparse_attention/wgmma/mask_bits.cuh"

namespace jaxsparse {

template <class C>
__device__ __forceinline__ void OrderBits(const AttentionGradParams& p, typename C::Tile& tile,
                                          int lane) {
  const ListParams& m = p.lists;
  if constexpr (C::kKeys) {
    for (int i = lane; i < C::kOther * (p.tile_rows / 32); i += 32) {
      const int query = i % C::kOther, within = query % kStripRows;
      const Strip strip = tile.strips[query / kStripRows];
      const int word = tile.block_row / 32 + i / C::kOther;
      uint32_t bits = strip.valid >> within & 1 ? ~0u : 0;
      if (bits != 0 && strip.words >= 0) {
        bits = word < m.row_words ? __ldg(m.words + strip.words + within * m.row_words + word) : 0;
      }
      tile.bits[i] = bits;
    }
  } else {
    for (int i = lane; i < p.tile_rows * C::kWords; i += 32) {
      const int word = i % C::kWords;
      const int row = min(tile.block_row + i / C::kWords, m.block_q - 1);
      tile.bits[i] = StripBits(m, tile.strips[2 * word], row) |
                     StripBits(m, tile.strips[2 * word + 1], row) << 16;
    }
  }
}

template <class C>
__device__ __forceinline__ void CleanTile(typename C::Shared& shared, int slot, int lane) {
  using T = typename C::T;
  const uint32_t first = ptx::SharedAddress(shared.ring[slot][0]);
  const uint32_t second = ptx::SharedAddress(shared.ring[slot][1]);
  for (int row = lane; row < C::kOther; row += 32) {
    bool found = CleanRow<T, C::kOther, C::kBlocks>(first, row);
    if constexpr (C::kKeys) {
      found |= CleanRow<T, C::kOther, C::kBlocks>(second, row);
      if (found) shared.tiles[slot].offset[row] = NAN;
    } else if (found) {
      *reinterpret_cast<uint16_t*>(shared.ring[slot][1] + row * 128) = 0x7FFF;  // NaN
    }
  }
}

// Checking warp `number`.
template <class C>
__device__ void CheckGradTiles(const AttentionGradParams& p, typename C::Shared& shared,
                               int number) {
  const int lane = threadIdx.x % 32;
  for (uint32_t parity = 0;; parity ^= 1) {
    ptx::BarrierWait(ptx::SharedAddress(&shared.check_full[number]), parity);
    const int slot = shared.check_slot[number];
    if (slot < 0) return;
    OrderBits<C>(p, shared.tiles[slot], lane);
    CleanTile<C>(shared, slot, lane);
    ptx::FenceAsyncProxy();
    __syncwarp();
    if (lane == 0) {
      ptx::BarrierArrive(ptx::SharedAddress(&shared.full[slot]));
      ptx::BarrierArrive(ptx::SharedAddress(&shared.check_empty[number]));
    }
    __syncwarp();
  }
}

}  // namespace jaxsparse
