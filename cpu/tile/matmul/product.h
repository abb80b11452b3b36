// The register tiles of the matrix products, written once over `Vec` and compiled once per
// instruction set.
//
// Floor: R rows x V vectors take R*V multiply-adds a column and load V vectors and R scalars: 12x2
// takes 12 cycles for 14 loads at two of each a cycle, so it is bound by arithmetic while the panel
// comes from the second-level cache or nearer. A listed tile adds two index loads: 16 loads in the
// same 12 cycles. Tile: R*V accumulators stay in registers over the depth of a call. Pipeline: none
// in software; loads do not depend on sums, which the reorder window covers.
//
// Include after one transpose.h. Everything has internal linkage: no unit may lend its instructions
// to another.
#pragma once

#include <cstdint>

#include "cpu/tile/conv/product.h"
#include "cpu/tile/matmul/isa.h"
#include "cpu/tile/matmul/transpose.h"

namespace {

using jaxsparse::kStripBlock;
using jaxsparse::MatmulIsa;
using jaxsparse::ProductTile;

template <int R, int V>
void MultiplyStrip(const ProductTile& tile) {
  Accumulators<R, V> acc;
  if (tile.adds) {
    acc.LoadSums(tile.sums);
  } else {
    acc.Clear();
  }
  const int64_t step = tile.step;
  const float* strip = tile.strip;
  const float* panel = tile.panel;
  for (int64_t left = tile.depth; left > 0; left -= kStripBlock, strip += R * kStripBlock) {
    const int64_t columns = left < kStripBlock ? left : kStripBlock;
#pragma GCC unroll 2
    for (int64_t d = 0; d < columns; ++d, panel += step) {
      acc.Update(panel, Vec::kLanes, [&](int r) { return strip[r * kStripBlock + d]; });
    }
  }
  acc.StoreSums(tile.sums);
}

template <int R, int V>
void MultiplyListed(const ProductTile& tile) {
  Accumulators<R, V> acc;
  if (tile.adds) {
    acc.LoadSums(tile.sums);
  } else {
    acc.Clear();
  }
  const int64_t step = tile.step;
  for (int64_t j = 0; j < tile.depth; ++j) {
    const float* strip = tile.strip + tile.strip_at[j];
    const float* panel = tile.panel + tile.panel_at[j] * step;
    acc.Update(panel, Vec::kLanes, [&](int r) { return strip[r * kStripBlock]; });
  }
  acc.StoreSums(tile.sums);
}

template <int V, int... R>
void AddHeights(MatmulIsa& isa) {
  ((isa.product[V][R] = MultiplyStrip<R, V>), ...);
  ((isa.listed[V][R] = MultiplyListed<R, V>), ...);
}

MatmulIsa MakeMatmulTable() {
  MatmulIsa isa = {};
  isa.transpose = TransposePanel;
  AddHeights<1, 1, 2, 4, 6, 8, 12>(isa);
  if constexpr (Vec::kWideFile) {
    AddHeights<2, 1, 2, 4, 6, 8, 12>(isa);
    AddHeights<4, 1, 2, 4, 6>(isa);
  } else {
    AddHeights<2, 1, 2, 4, 6>(isa);
    AddHeights<4, 1, 2>(isa);
  }
  return isa;
}

}  // namespace
