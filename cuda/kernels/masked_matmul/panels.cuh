// Tiles of 128 rows x 256 columns of a masked product: the ring that feeds one, which tiles a
// persistent CTA takes, and which slabs a tile visits.
#pragma once

#include "cuda/core/device.h"
#include "cuda/core/launch.h"
#include "cuda/kernels/masked_matmul/strips.h"
#include "cuda/tile/strip/piece_mma.cuh"

namespace jaxsparse {

inline constexpr int kPanelStages = 4;
inline constexpr int kPanelGroups = kPanelColumns / kColumnBlock;  // multiplying warpgroups
inline constexpr int kPanelLoaders = 4;                            // warps
inline constexpr int kMostOrdered = 128;  // tiles of rows that are put in order
inline constexpr int kPanelMask = (1 << kPanelPieces) - 1;
static_assert(kPanelPieces == kGroupPieces, "a warpgroup has sums for all pieces of a tile");

// True in one lane of a warp whose lanes are all here.
__device__ __forceinline__ bool ElectLane() {
  uint32_t elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(elected));
  return elected != 0;
}

// In which order tiles of rows go out.
struct TileOrder {
  int ctas;                      // that work in order; 0: all, in none
  int visits[kMostOrdered];      // of each tile of rows
  uint16_t tiles[kMostOrdered];  // tiles of rows, those with the most visits first
};

struct PanelRing {
  uint8_t b[kPanelStages][kPanelColumns * kSlabBytes];
  uint8_t a[kPanelStages][kPanelPieces * kPieceBytes];  // what is kept, one after the other
  uint8_t out[kPanelGroups][kPieceBytes / 2];           // results on their way out
  uint64_t full[kPanelStages], empty[kPanelStages];
  TileOrder order;
};

// Puts the tiles of rows in order, where there are few of them and some have many more visits than
// others: else chance alone leaves no CTA much more than its share. `even`: CTAs that have the same
// place in the order in every round; 0: there are none. All threads of the block call this.
__device__ __forceinline__ void OrderTiles(const StripParams& p, int even, TileOrder& order) {
  const int tile = threadIdx.x, tiles = p.index.piece_tiles;
  if (tile == 0) order.ctas = 0;
  if (even == 0 || p.index.lists > 1 || tiles > kMostOrdered) return __syncthreads();
  const int mine = tile < tiles ? __ldg(p.index.piece_slabs + tile) : 0;
  if (tile < tiles) order.visits[tile] = mine;
  __syncthreads();
  if (tile < tiles) {
    int rank = 0, least = mine, most = mine, sum = 0;
    for (int i = 0; i < tiles; ++i) {
      const int other = order.visits[i];
      rank += other > mine || (other == mine && i < tile);
      least = min(least, other);
      most = max(most, other);
      sum += other;
    }
    order.tiles[rank] = static_cast<uint16_t>(tile);
    if (tile == 0 && 5 * (most - least) * tiles > sum) order.ctas = even;
  }
  __syncthreads();
}

struct PanelTile {
  int list, row, column;
  int steps;  // slabs that some piece keeps
  int head;   // of the first 32 visits, this lane's
  const int32_t* entries;
};

// The tiles of one CTA. Neighbours in time have the same columns. Where tiles of rows are in order,
// every other round turns it round: who had many visits gets few.
class PanelTiles {
 public:
  __device__ PanelTiles(const StripParams& p, const TileOrder& order)
      : p_(p), order_(order), ctas_(order.ctas > 0 ? order.ctas : static_cast<int>(gridDim.x)) {}

  __device__ int first() const {
    return static_cast<int>(blockIdx.x) < ctas_ ? static_cast<int>(blockIdx.x) : count();
  }
  __device__ int step() const { return ctas_; }
  __device__ int count() const {
    return p_.lists * p_.index.piece_tiles * ((p_.columns + kPanelColumns - 1) / kPanelColumns);
  }

  // Memory is asked, and answers while the tile before is at work. Past the last tile: any one.
  __device__ PanelTile Find(int item) const {
    const int tiles = p_.index.piece_tiles, round = item / ctas_, end = (round + 1) * ctas_;
    const bool turned = order_.ctas > 0 && round % 2 != 0 && end <= count();
    item = min(turned ? end - 1 - (item - round * ctas_) : item, count() - 1);
    const int line = item / tiles, place = item - line * tiles;
    // Out of order a CTA has other rows in each of its rounds all the same.
    const int r = order_.ctas > 0 ? order_.tiles[place] : (place + line) % tiles;
    const int group = line / p_.lists, list = line - group * p_.lists;
    const int64_t listed = (p_.index.lists == 1 ? 0 : int64_t{list}) * tiles + r;
    const int32_t* entries = p_.index.piece_entries + listed * p_.slabs;
    const int lane = threadIdx.x % 32;
    return {list,
            r * kPanelPieces * kPieceRows,
            group * kPanelColumns,
            __ldg(p_.index.piece_slabs + listed),
            lane < p_.slabs ? __ldg(entries + lane) : 0,
            entries};
  }

 private:
  const StripParams& p_;
  const TileOrder& order_;
  int ctas_;
};

// A tile's visits: a slab and the pieces that keep it, 32 of them in the lanes of a warp.
class PanelVisits {
 public:
  __device__ explicit PanelVisits(const PanelTile& tile) : tile_(tile), next_(tile.head) {}
  __device__ int Entry(int s) {
    if (s % 32 == 0) {
      entries_ = next_;
      next_ = Read(s + 32 + threadIdx.x % 32);  // its latency passes with these visits
    }
    return __shfl_sync(~0u, entries_, s % 32);
  }

 private:
  __device__ int Read(int at) const { return at < tile_.steps ? __ldg(tile_.entries + at) : 0; }
  const PanelTile& tile_;
  int entries_ = 0, next_;
};

// CTAs that take whole tiles of rows in every round, where that makes no more rounds; else 0.
inline int EvenCtas(int64_t items, int64_t tiles) {
  const int64_t all = MultiProcessors();
  const int64_t even = items < all ? 0 : all / tiles * tiles;
  return static_cast<int>(even > 0 && CeilDiv(items, even) == CeilDiv(items, all) ? even : 0);
}

// The first row of piece `piece` of a tile: of `a`, or of its turned pieces in slab 0.
__device__ __forceinline__ int PieceRow(const StripParams& p, const PanelTile& tile, int lane) {
  const int piece = tile.row / kPieceRows + lane;
  if (!p.turned) return piece * kPieceRows;
  const int pieces = (p.rows + kPieceRows - 1) / kPieceRows;
  return ((p.pack_lists == 1 ? 0 : tile.list) * pieces + piece) * p.slabs * kPieceRows;
}

}  // namespace jaxsparse
