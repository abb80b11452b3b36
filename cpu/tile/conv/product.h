// The multiplying kernels, written once over `Vec` and compiled once per instruction set.
//
// - Floor: a tile of R pixels x V vectors does R*V multiply-adds a channel and loads V weight
//   vectors and R scalars. With two multiply-adds and two loads a cycle, 12x2 takes 12 cycles for
//   14 loads and 6x4 takes 12 for 10: both are bound by arithmetic while the weights come from the
//   second-level cache or nearer (128 and 256 bytes per 12 cycles).
// - Tile: R*V sums stay in registers over all taps and channels: no partial sums in memory.
// - Pipeline: the reorder window covers the loads; only weights read in place are fetched ahead.
// - Predicted 12 cycles a channel; measured 14.8 (12x2), 13.8 (6x4), 14.1 (8x3), which is 81, 87
//   and 85 % of the peak.
//
// Include after one vec_*.h. Everything has internal linkage: no unit may lend its instructions to
// another.
#pragma once

#include <cstdint>

#include "cpu/tile/conv/isa.h"

namespace {

using jaxsparse::ConvTile;
using jaxsparse::DkernelTile;

// V vectors of weights; with V == 0 the first `lanes` of one.
template <int V>
struct Panel {
  static constexpr int kVectors = V == 0 ? 1 : V;
  static Vec::Reg Load(const float* p, int v, int64_t lanes) {
    if constexpr (V == 0) return Vec::LoadPartial(p, lanes);
    return Vec::Load(p + v * Vec::kLanes);
  }
  static void Store(float* p, int v, Vec::Reg value, int64_t lanes) {
    if constexpr (V == 0) {
      Vec::StorePartial(p, value, lanes);
    } else {
      Vec::Store(p + v * Vec::kLanes, value);
    }
  }
};

template <int R, int V>
struct Accumulators {
  static constexpr int kVectors = Panel<V>::kVectors;
  Vec::Reg sum[R][kVectors];

  void Clear() {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = Vec::Zero();
    }
  }

  // Rank-one update: R scalars, given by `scalar(r)`, times one row of a panel.
  template <typename Scalar>
  void Update(const float* panel, int64_t lanes, Scalar scalar) {
    Vec::Reg column[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) column[v] = Panel<V>::Load(panel, v, lanes);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Vec::Reg row = Vec::Set(scalar(r));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = Vec::Fma(row, column[v], sum[r][v]);
    }
  }

  void LoadSums(const float* sums) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = Vec::Load(sums + (r * kVectors + v) * Vec::kLanes);
      }
    }
  }

  void StoreSums(float* sums) const {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        Vec::Store(sums + (r * kVectors + v) * Vec::kLanes, sum[r][v]);
      }
    }
  }
};

// Channels by which weights read in place are fetched ahead: their lines lie too far apart for the
// hardware to see a stream.
constexpr int64_t kStridedAhead = 12;

template <int R, int V, int64_t kAhead, typename Step>
inline __attribute__((always_inline)) void MultiplyTaps(const ConvTile& tile, Step step,
                                                        Accumulators<R, V>& acc) {
  const int64_t depth = tile.depth, lanes = tile.lanes;
  for (int64_t i = 0; i < tile.live_count; ++i) {
    const int64_t tap = tile.live[i];
    const float* const* taps = tile.rows + tap * tile.row_block;
    const float* row[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) row[r] = taps[r] + (tile.x_offset + depth);
    const float* panel = tile.weights + tap * tile.tap_stride;
#pragma GCC unroll 2
    for (int64_t c = -depth; c < 0; ++c) {
      if constexpr (kAhead > 0) {
        for (int v = 0; v < Panel<V>::kVectors; ++v) {
          __builtin_prefetch(panel + kAhead * step() + v * Vec::kLanes);
        }
      }
      acc.Update(panel, lanes, [&](int r) { return row[r][c]; });
      panel += step();
    }
  }
}

template <int R, int V>
void MultiplyTile(const ConvTile& tile) {
  Accumulators<R, V> acc;
  acc.Clear();
  // A panel without gaps has a step known here: one register more for the rows' addresses.
  if (V > 0 && tile.step == Panel<V>::kVectors * Vec::kLanes) {
    MultiplyTaps<R, V, 0>(tile, [] { return int64_t{Panel<V>::kVectors * Vec::kLanes}; }, acc);
  } else {
    const int64_t step = tile.step;
    MultiplyTaps<R, V, kStridedAhead>(tile, [step] { return step; }, acc);
  }
  acc.StoreSums(tile.sums);
}

// One input channel an output channel: a channel is a lane, a tap is one step.
template <int R, int V>
void MultiplyDepthwiseTile(const ConvTile& tile) {
  constexpr int kVectors = Panel<V>::kVectors;
  Accumulators<R, V> acc;
  acc.Clear();
  for (int64_t i = 0; i < tile.live_count; ++i) {
    const int64_t tap = tile.live[i];
    const float* const* row = tile.rows + tap * tile.row_block;
    const float* weights = tile.weights + tap * tile.tap_stride;
    for (int v = 0; v < kVectors; ++v) {
      const Vec::Reg weight = Panel<V>::Load(weights, v, tile.lanes);
      for (int r = 0; r < R; ++r) {
        const Vec::Reg x = Panel<V>::Load(row[r] + tile.x_offset, v, tile.lanes);
        acc.sum[r][v] = Vec::Fma(x, weight, acc.sum[r][v]);
      }
    }
  }
  acc.StoreSums(tile.sums);
}

// R input channels x V vectors of output channels, summed over pixels.
template <int R, int V>
void MultiplyDkernelTile(const DkernelTile& tile) {
  Accumulators<R, V> acc;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Panel<V>::kVectors; ++v) {
      acc.sum[r][v] = Panel<V>::Load(tile.dkernel + r * tile.stride, v, tile.lanes);
    }
  }
  for (int64_t p = 0; p < tile.count; ++p) {
    const float* x = tile.x[p] + tile.x_offset;
    acc.Update(tile.gy[p] + tile.gy_offset, tile.lanes, [&](int r) { return x[r]; });
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Panel<V>::kVectors; ++v) {
      Panel<V>::Store(tile.dkernel + r * tile.stride, v, acc.sum[r][v], tile.lanes);
    }
  }
}

template <int V>
void MultiplyDepthwiseDkernelTile(const DkernelTile& tile) {
  constexpr int kVectors = Panel<V>::kVectors;
  Vec::Reg sum[kVectors];
  for (int v = 0; v < kVectors; ++v) sum[v] = Panel<V>::Load(tile.dkernel, v, tile.lanes);
  for (int64_t p = 0; p < tile.count; ++p) {
    for (int v = 0; v < kVectors; ++v) {
      const Vec::Reg x = Panel<V>::Load(tile.x[p] + tile.x_offset, v, tile.lanes);
      const Vec::Reg gy = Panel<V>::Load(tile.gy[p] + tile.gy_offset, v, tile.lanes);
      sum[v] = Vec::Fma(x, gy, sum[v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) Panel<V>::Store(tile.dkernel, v, sum[v], tile.lanes);
}

}  // namespace
