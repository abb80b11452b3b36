// The multiply of a saturated layer, one instruction set a unit: images are the lanes, so an entry
// is one broadcast and one multiply-add a vector, whatever the pattern.
//
// Floor: one multiply-add an entry and image; a row's entry loads one vector per 64 images and one
// broadcast, so loads bound it at two vectors a cycle where the tile's activations lie in the
// second-level cache. Rows of a bundle share those vectors: a few rows and vectors of sums are in
// registers, and the multiply-adds bound it.
#pragma once

#include <cstdint>

#include "cpu/tile/bounded/isa.h"

namespace jaxsparse {
namespace {

// What is learnt of a block's columns.
template <int kVectors>
struct BlockFacts {
  Vec::Reg lowest[kVectors], highest[kVectors], taint[kVectors];

  explicit BlockFacts(float upper) {
    for (int v = 0; v < kVectors; ++v) {
      lowest[v] = Vec::Set(upper);
      highest[v] = taint[v] = Vec::Zero();
    }
  }
  void See(int v, Vec::Reg y) {
    lowest[v] = Vec::Min(lowest[v], y);
    highest[v] = Vec::Max(highest[v], y);
    taint[v] = Vec::Fma(y, Vec::Zero(), taint[v]);
  }
  void Store(const BoundedTile& tile, int64_t first) const {
    for (int v = 0; v < kVectors; ++v) {
      Vec::Store(tile.lowest + first + v * Vec::kLanes, lowest[v]);
      Vec::Store(tile.highest + first + v * Vec::kLanes, highest[v]);
      Vec::Store(tile.taint + first + v * Vec::kLanes, taint[v]);
    }
  }
};

// kRows rows from `row` on, of unit `unit`; `weights` are theirs, an entry's `step` apart.
template <int kVectors, int kRows, typename Index>
void MultiplyRows(const BoundedTile& tile, int64_t first, int64_t unit, int64_t row,
                  const float* weights, int64_t step, BlockFacts<kVectors>& facts) {
  const BoundedLayer& layer = tile.layer;
  const Index* indices = static_cast<const Index*>(layer.indices);
  Vec::Reg sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = Vec::Zero();
  }
  const int64_t end =
      layer.starts[unit + 1] < layer.entries ? layer.starts[unit + 1] : layer.entries;
  for (int64_t e = layer.starts[unit] < 0 ? 0 : layer.starts[unit]; e < end; ++e) {
    const uint64_t index = static_cast<uint64_t>(indices[e]);
    if (index >= static_cast<uint64_t>(layer.n_in)) continue;
    const float* in = tile.in + static_cast<int64_t>(index) * tile.in_stride + first;
    Vec::Reg x[kVectors];
    for (int v = 0; v < kVectors; ++v) x[v] = Vec::Load(in + v * Vec::kLanes);
    for (int r = 0; r < kRows; ++r) {
      const Vec::Reg weight = Vec::Set(weights[e * step + r]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = Vec::Fma(weight, x[v], sum[r][v]);
    }
  }
  const Vec::Reg zero = Vec::Zero(), upper = Vec::Set(layer.upper);
  for (int r = 0; r < kRows; ++r) {
    const Vec::Reg bias = Vec::Set(layer.bias[row + r]);
    float* out = tile.out + (row + r) * tile.out_stride + first;
    for (int v = 0; v < kVectors; ++v) {
      const Vec::Reg y = Vec::Min(upper, Vec::Max(zero, Vec::Add(sum[r][v], bias)));
      Vec::Store(out + v * Vec::kLanes, y);
      facts.See(v, y);
    }
  }
}

template <int kVectors, typename Index>
void MultiplyBlock(const BoundedTile& tile, int64_t first) {
  constexpr int kRows = (Vec::kWideFile ? 16 : 8) / kVectors;
  const BoundedLayer& layer = tile.layer;
  BlockFacts<kVectors> facts(layer.upper);
  if (layer.bundled) {
    for (int64_t row = 0; row < layer.distinct; row += kRows) {
      MultiplyRows<kVectors, kRows, Index>(tile, first, row / kBundle, row,
                                           layer.weights + row % kBundle, kBundle, facts);
    }
  } else {
    for (int64_t row = 0; row < layer.distinct; ++row) {
      MultiplyRows<kVectors, 1, Index>(tile, first, row, row, layer.weights, 1, facts);
    }
  }
  facts.Store(tile, first);
}

template <typename Index>
void MultiplyTile(const BoundedTile& tile) {
  constexpr int kVectors = Vec::kWideFile ? 4 : 2;
  constexpr int64_t kStep = kVectors * Vec::kLanes;
  int64_t first = 0;
  for (; first + kStep <= tile.images; first += kStep) MultiplyBlock<kVectors, Index>(tile, first);
  for (; first < tile.images; first += Vec::kLanes) MultiplyBlock<1, Index>(tile, first);
}

void Multiply(const BoundedTile& tile) {
  if (tile.layer.wide) return MultiplyTile<int32_t>(tile);
  MultiplyTile<uint16_t>(tile);
}

}  // namespace
}  // namespace jaxsparse
