// Tiles of 512 rows x 64 columns of a masked product, and the two rings that feed one: slabs of
// `b`, and the pieces of `a` that are kept in them. The CTAs of a cluster have neighbouring columns
// of the same rows, so their lists are the same and a piece is loaded once for all.
#pragma once

#include "cuda/core/mbarrier.cuh"
#include "cuda/core/warpgroup.cuh"
#include "cuda/tile/strip/params.h"

namespace jaxsparse {

inline constexpr int kPieceStages = 8;  // slabs of `b` in shared memory
inline constexpr int kPieceSlots = 38;  // pieces of `a`
inline constexpr int kPieceBytes = kPieceRows * kSlabBytes;
inline constexpr int kPieceGroups = 4;                           // multiplying warpgroups
inline constexpr int kGroupPieces = kTilePieces / kPieceGroups;  // each one's
static_assert(kPieceSlots >= kTilePieces && kPieceSlots % kPieceCluster == 0,
              "a slab's pieces fit; the same CTA loads a slot in every round");

inline constexpr uint16_t kAllRanks = (1 << kPieceCluster) - 1;

struct PieceRing {
  uint8_t b[kPieceStages][kColumnBlock * kSlabBytes];
  uint8_t a[kPieceSlots][kPieceBytes];
  uint8_t out[kPieceGroups][kPieceBytes / 2];  // results on their way out
  uint64_t full[kPieceStages], empty[kPieceStages];
};

// Keeps a value in a register where the compiler would compute it again and again.
template <typename T>
__device__ __forceinline__ T Held(T value) {
  if constexpr (sizeof(T) == 4) {
    asm volatile("" : "+r"(value));
  } else {
    asm volatile("" : "+l"(value));
  }
  return value;
}

struct PieceTile {
  int list, row, column;
  int steps;  // slabs that some piece keeps
  const int32_t* entries;
};

class PieceTiles {
 public:
  __device__ explicit PieceTiles(const StripParams& p)
      : p_(p),
        rank_(static_cast<int>(ptx::ClusterRank())),
        clusters_(static_cast<int>(gridDim.x) / kPieceCluster) {}

  __device__ int first() const { return static_cast<int>(blockIdx.x) / kPieceCluster; }
  __device__ int step() const { return clusters_; }
  __device__ int count() const {
    const int groups = (p_.column_blocks + kPieceCluster - 1) / kPieceCluster;
    return p_.lists * p_.index.piece_tiles * groups;
  }

  // Neighbours in time have the same columns; a cluster has other rows in each of its rounds, so
  // that no CTA gets all of the heavy ones.
  __device__ PieceTile Find(int item) const {
    const int tiles = p_.index.piece_tiles;
    const int line = item / tiles;
    const int r = (item + static_cast<int>(int64_t{line} * tiles / clusters_)) % tiles;
    const int group = line / p_.lists;
    PieceTile tile;
    tile.list = line - group * p_.lists;
    tile.row = r * kTilePieces * kPieceRows;
    tile.column = (group * kPieceCluster + rank_) * kColumnBlock;
    const int64_t listed = (p_.index.lists == 1 ? 0 : int64_t{tile.list}) * tiles + r;
    tile.steps = p_.index.piece_slabs[listed];
    tile.entries = p_.index.piece_entries + listed * p_.slabs;
    return tile;
  }

 private:
  const StripParams& p_;
  int rank_, clusters_;
};

// Up to 32 visits of a tile, one a lane: a slab, the pieces that keep it, and which slots of the
// ring are theirs. Slots are taken one after the other, visit by visit and tile by tile.
class PieceBatch {
 public:
  // Starts the next tile, or goes on by 32 visits. All lanes of a warp call this.
  __device__ void Load(const PieceTile& tile, int first) {
    const int lane = threadIdx.x % 32;
    const auto read = [&](int at) { return at < tile.steps ? __ldg(tile.entries + at) : 0; };
    entry_ = first == 0 ? read(lane) : next_;
    next_ = read(first + 32 + lane);  // its latency passes with this one's visits
    uint32_t sum = __popc(entry_ & kLiveMask);
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const uint32_t lower = __shfl_up_sync(~0u, sum, step);
      sum += lane >= step ? lower : 0;
    }
    end_before_ = end_;
    count_before_ = count_;
    end_ = total_ + sum;
    total_ = __shfl_sync(~0u, end_, 31);
    count_ = min(tile.steps - first, 32);
  }

  __device__ int count() const { return count_; }
  __device__ int entry(int i) const { return __shfl_sync(~0u, entry_, i); }
  // The first slot of visit i, counted on and on.
  __device__ uint32_t slot(int i) const {
    return __shfl_sync(~0u, end_ - __popc(entry_ & kLiveMask), i);
  }

  // This lane's visit: how many visits back is the one that must be over before it may be loaded.
  __device__ int NeededBack() const {
    const int lane = threadIdx.x % 32;
    int back = 1;
#pragma unroll
    for (int k = 1; k <= kPieceStages; ++k) {
      const uint32_t here = __shfl_up_sync(~0u, end_, k);
      const int at = count_before_ + lane - k;
      const uint32_t there = __shfl_sync(~0u, end_before_, at & 31);
      const bool known = lane >= k || at >= 0;
      if (known && end_ - (lane >= k ? here : there) <= kPieceSlots) back = k;
    }
    return back;
  }

  static constexpr int kLiveMask = (1 << kTilePieces) - 1;

 private:
  int entry_ = 0, next_ = 0, count_ = 32, count_before_ = 32;
  uint32_t end_ = 0, end_before_ = 0, total_ = 0;
};

}  // namespace jaxsparse
