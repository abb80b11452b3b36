// Which masks the index kernels take: every coordinate, word and id must fit in 32 bits.
#pragma once

#include <cstdint>

namespace jaxsparse {

constexpr int64_t kMaxIndexAxis = int64_t{1} << 30;

// `cell_h` x `cell_w` pixels have one id. Python refuses the rest with a better message.
inline bool IndexFits32(int64_t images, int64_t height, int64_t width, int64_t cell_h,
                        int64_t cell_w) {
  const int64_t words = (width + 31) / 32;
  const int64_t cells = ((height + cell_h - 1) / cell_h) * ((width + cell_w - 1) / cell_w);
  return height <= kMaxIndexAxis && width <= kMaxIndexAxis && images <= kMaxIndexAxis &&
         images * height <= kMaxIndexAxis && images * height * words <= kMaxIndexAxis &&
         (cells == 0 || images <= INT32_MAX / cells);
}

}  // namespace jaxsparse
