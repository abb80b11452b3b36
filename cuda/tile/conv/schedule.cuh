// TileSchedule: which parts of which compute tiles a persistent CTA takes, from the row count that
// only the device knows. N tiles of the same rows are neighbours in time, so that gathered pixels
// are read from DRAM once and then from L2.
//
// Whole tiles go out in waves, one a worker. With StreamK the last full wave and the rest after it
// are cut into equal runs of K steps instead, so that no worker idles in a wave that is nearly
// empty: a run that starts inside a tile leaves its sum to the worker that has the tile's first
// step. Runs go to the workers from the last one down, so that a worker waits for workers of lower
// block indices only, and those leave their sums before they wait for anybody. Multiprocessors take
// blocks in the order of their indices, clusters as a whole: whom a block waits for has started,
// and leaves its sum without waiting. So no number of resident blocks is too small, whatever else
// the device runs.
#pragma once

#include "cuda/tile/conv/params.h"

namespace jaxsparse {

struct Segment {
  int m_tile, n_tile;
  int begin, end;  // K steps
  int limit;       // streamed: where the tile's steps end, counted over all streamed tiles
};

// CTAs that are done before the others: `ctas` from `first` on, each with `steps` K steps less,
// beside which they can write `bytes` bytes together.
struct SpareCtas {
  uint32_t first, ctas;
  int64_t steps, bytes;
};

// A worker is a cluster: `Cluster` CTAs take as many M tiles of one N tile, or `SplitK` CTAs share
// one tile's K steps.
template <int TileM, int TileN, int Cluster, int SplitK, bool StreamK>
class TileSchedule {
 public:
  static constexpr int kCtas = Cluster * SplitK;

  // Whole warps construct it: what follows from the rows is uniform to the compiler then.
  __device__ TileSchedule(int k_steps, int rows, int n_tiles, int rank)
      : n_tiles_(n_tiles),
        k_steps_(k_steps),
        rank_(rank),
        worker_(static_cast<int>(blockIdx.x) / kCtas),
        workers_(static_cast<int>(gridDim.x) / kCtas),
        tile_(worker_) {
    const int m_tiles = (__shfl_sync(~0u, rows, 0) + TileM - 1) / TileM;
    const int total = (m_tiles + Cluster - 1) / Cluster * n_tiles_;
    whole_ = total;
    if constexpr (StreamK) {
      if (total % workers_ != 0) whole_ = max(total / workers_ - 1, 0) * workers_;
      streamed_ = total - whole_;
      sharers_ = min(workers_, streamed_ * max(1, min(kMostParts, k_steps_ / kLeastSteps)));
      position_ = Bound(run());
      stop_ = Bound(run() + 1);
    }
  }

  // The M tile of the worker's first segment, if whole tiles go to every worker: what can be looked
  // up before the count is known.
  __device__ static int FirstTile(int n_tiles, int rank) {
    const int worker = static_cast<int>(blockIdx.x) / kCtas;
    return worker / n_tiles * Cluster + (SplitK == 1 ? rank : 0);
  }

  // The next segment, or false when this worker is done.
  __device__ bool Next(Segment* s) {
    if (tile_ < whole_) {
      *s = Locate(tile_, rank_ * k_steps_ / SplitK, (rank_ + 1) * k_steps_ / SplitK);
      if constexpr (SplitK == 1) s->begin = 0, s->end = k_steps_;
      tile_ += workers_;
      return true;
    }
    if constexpr (StreamK) {
      if (position_ < stop_) {
        const int t = position_ / k_steps_, first = t * k_steps_;
        const int end = min(stop_, first + k_steps_);
        *s = Locate(whole_ + t, position_ - first, end - first);
        s->limit = first + k_steps_;
        position_ = end;
        return true;
      }
    }
    return false;
  }

  // The K steps of this worker's segments; a new schedule's only.
  __device__ int64_t steps() const {
    const int64_t tiles = max(whole_ - tile_ + workers_ - 1, 0) / workers_;
    return tiles * k_steps_ / SplitK + stop_ - position_;
  }

  // Who has less to do: without a tile of the last wave, or without a run. One writes 32 KB beside
  // a step of 128 x 256, and many together no more than kMostSpare would: beside more the operands
  // of the others come late.
  __device__ SpareCtas Spare() const {
    const int last = StreamK ? workers_ - sharers_ : whole_ % workers_;
    const bool streams = StreamK && streamed_ > 0;
    if (last == 0 || (StreamK && !streams)) return {};
    const int64_t steps = streams ? streamed_ * k_steps_ / sharers_ : k_steps_ / SplitK;
    const int first = streams ? 0 : last, count = streams ? last : workers_ - last;
    const int64_t bytes = steps * (TileM * TileN) * min(kMostSpare, count * kCtas);
    return {static_cast<uint32_t>(first * kCtas), static_cast<uint32_t>(count * kCtas), steps,
            bytes};
  }

  // Whether the `i`-th worker before this one holds a part of the streamed tile of `s`.
  __device__ bool Shares(const Segment& s, int i) const {
    return run() + i < sharers_ && Bound(run() + i) < s.limit;
  }
  __device__ bool Unfinished(const Segment& s) const { return s.end < k_steps_; }

 private:
  static constexpr int kMostSpare = 64;
  static constexpr int kMostParts = 4;   // of one tile: its owner adds them up alone
  static constexpr int kLeastSteps = 2;  // a part, on average; so no worker's run is empty
  static_assert(Cluster == 1 || SplitK == 1, "a cluster either shares weights or splits K");
  static_assert(!StreamK || SplitK == 1, "stream_k and split_k exclude each other");

  __device__ Segment Locate(int t, int begin, int end) const {
    const int group = n_tiles_ == 1 ? t : t / n_tiles_;  // a division takes long
    return {group * Cluster + (SplitK == 1 ? rank_ : 0), t - group * n_tiles_, begin, end, 0};
  }
  // The number of this worker's run of streamed steps, and where run `run` begins.
  __device__ int run() const { return workers_ - 1 - worker_; }
  // steps * run / sharers without a division of 64 bits, which is a call: streamed are fewer tiles
  // than two waves, of 2^22 steps at most (ConvSizeReason).
  __device__ int Bound(int run) const {
    if (sharers_ == 0) return 0;
    const int steps = streamed_ * k_steps_, each = steps / sharers_, at = min(run, sharers_);
    return each * at + (steps - each * sharers_) * at / sharers_;
  }

  int n_tiles_, k_steps_, rank_, worker_, workers_, tile_;
  int whole_ = 0, streamed_ = 0, sharers_ = 0, position_ = 0, stop_ = 0;
};

}  // namespace jaxsparse
