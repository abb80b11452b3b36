// The multiply of a saturated layer, one instruction set a unit: images are the lanes, so an entry
// is one broadcast and one multiply-add a vector, whatever the pattern.
//
// Floor: one multiply-add an entry and image; an entry loads one vector per 64 images and one
// broadcast, so loads bound it at two vectors a cycle where the tile's activations lie in the
// second-level cache.
#pragma once

#include <cstdint>

#include "cpu/kernels/bounded_layer.h"

namespace jaxsparse {
namespace {

template <int kVectors, typename Index>
void MultiplyBlock(const BoundedTile& tile, int64_t first) {
  using Reg = Vec::Reg;
  const BoundedLayer& layer = tile.layer;
  const Index* indices = static_cast<const Index*>(layer.indices);
  const Reg zero = Vec::Zero(), upper = Vec::Set(layer.upper);
  Reg lowest[kVectors], highest[kVectors], taint[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    lowest[v] = upper;
    highest[v] = taint[v] = zero;
  }
  for (int64_t o = 0; o < layer.distinct; ++o) {
    Reg sum[kVectors];
    for (int v = 0; v < kVectors; ++v) sum[v] = zero;
    const int64_t end = layer.starts[o + 1] < layer.entries ? layer.starts[o + 1] : layer.entries;
    for (int64_t e = layer.starts[o] < 0 ? 0 : layer.starts[o]; e < end; ++e) {
      const uint64_t index = static_cast<uint64_t>(indices[e]);
      if (index >= static_cast<uint64_t>(layer.n_in)) continue;
      const float* in = tile.in + static_cast<int64_t>(index) * tile.in_stride + first;
      const Reg weight = Vec::Set(layer.weights[e]);
      for (int v = 0; v < kVectors; ++v) {
        sum[v] = Vec::Fma(weight, Vec::Load(in + v * Vec::kLanes), sum[v]);
      }
    }
    const Reg bias = Vec::Set(layer.bias[o]);
    float* out = tile.out + o * tile.out_stride + first;
    for (int v = 0; v < kVectors; ++v) {
      const Reg y = Vec::Min(upper, Vec::Max(zero, Vec::Add(sum[v], bias)));
      Vec::Store(out + v * Vec::kLanes, y);
      lowest[v] = Vec::Min(lowest[v], y);
      highest[v] = Vec::Max(highest[v], y);
      taint[v] = Vec::Fma(y, zero, taint[v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    Vec::Store(tile.lowest + first + v * Vec::kLanes, lowest[v]);
    Vec::Store(tile.highest + first + v * Vec::kLanes, highest[v]);
    Vec::Store(tile.taint + first + v * Vec::kLanes, taint[v]);
  }
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
