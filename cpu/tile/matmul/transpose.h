// Panels of a matrix that is stored transposed, in squares of registers.
//
// Floor: the matrix's bytes. Rows of the next square are asked for while one is turned: a square
// takes a line or less of each, which no prefetcher follows. Include after one transpose.h.
#pragma once

#include <cstdint>

#include "cpu/tile/load.h"
#include "cpu/tile/matmul/isa.h"

namespace {

using jaxsparse::TransposedPanel;

template <DType kType>
void TransposeAs(const TransposedPanel& panel) {
  static_assert(kTransposeSide == Vec::kLanes);
  constexpr int64_t kSide = kTransposeSide;
  for (int64_t o = 0; o < panel.step; o += kSide) {
    const auto* const from = static_cast<const Element<kType>*>(panel.from) + o * panel.stride;
    for (int64_t d = 0; d < panel.depth; d += kSide) {
      const int64_t count = panel.depth - d < kSide ? panel.depth - d : kSide;
      Vec::Reg square[kSide];
#pragma GCC unroll 16
      for (int64_t i = 0; i < kSide; ++i) {
        const auto* const row = from + i * panel.stride + d;
        __builtin_prefetch(row + kSide * panel.stride);
        if (o + i >= panel.count) {
          square[i] = Vec::Zero();
        } else {
          square[i] = count == kSide ? LoadVector<kType>(row) : LoadSome<kType>(row, count);
        }
      }
      TransposeSquare(square);
      float* const to = panel.to + d * panel.step + o;
      for (int64_t i = 0; i < count; ++i) Vec::Store(to + i * panel.step, square[i]);
    }
  }
}

void TransposePanel(const TransposedPanel& panel) {
  if (panel.type == DType::kBF16) return TransposeAs<DType::kBF16>(panel);
  if (panel.type == DType::kF16) return TransposeAs<DType::kF16>(panel);
  TransposeAs<DType::kF32>(panel);
}

}  // namespace
