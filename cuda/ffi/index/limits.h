// What the index handlers check alike: every coordinate, word and id must fit in 32 bits.
#pragma once

#include <cstdint>

#include "contracts/checked.h"

namespace jaxsparse {

constexpr int64_t kMaxIndexAxis = int64_t{1} << 30;

// A tile whose sides are powers of two up to 32, as `8*log2(height) + log2(width)`.
struct TileCode {
  int32_t th_log2, tw_log2;
  bool valid() const { return th_log2 >= 0 && th_log2 <= 5 && tw_log2 >= 0 && tw_log2 <= 5; }
};

inline TileCode TileCodeOf(int64_t code) {
  return {static_cast<int32_t>(code / 8), static_cast<int32_t>(code % 8)};
}

// `cell_h` x `cell_w` pixels have one id. Python refuses the rest with a better message.
inline bool IndexFits32(Checked images, Checked height, Checked width, Checked cell_h,
                        Checked cell_w) {
  return height <= kMaxIndexAxis && width <= kMaxIndexAxis && images <= kMaxIndexAxis &&
         images * height * MostOf(WordsOf(width), 1) <= kMaxIndexAxis &&
         images * CeilOf(height, cell_h) * CeilOf(width, cell_w) <= INT32_MAX;
}

}  // namespace jaxsparse
