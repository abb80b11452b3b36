// Gather-load of the left operand: up to 12 rows, wherever they lie, side by side as float32
// (layout: isa.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/tile/conv/isa.h"
#include "cpu/tile/matmul/isa.h"

namespace jaxsparse {

inline int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

inline int64_t StripFloats(int64_t rows, int64_t depth) {
  return rows * RoundUp(depth, kStripBlock);
}

// Copies `rows[r]` for r < count into a strip of `height` rows. A null row and the rows from
// `count` on are zero.
inline void LoadStrip(const ConvIsa& isa, DType type, const void* const* rows, int64_t count,
                      int64_t height, int64_t depth, float* strip) {
  for (int64_t d = 0; d < depth; d += kStripBlock) {
    const int64_t columns = std::min(depth - d, kStripBlock);
    for (int64_t r = 0; r < height; ++r, strip += kStripBlock) {
      if (r < count && rows[r] != nullptr) {
        isa.to_f32(type, ElementAt(rows[r], d, type), columns, strip);
      } else {
        std::memset(strip, 0, static_cast<size_t>(columns) * sizeof(float));
      }
    }
  }
}

}  // namespace jaxsparse
