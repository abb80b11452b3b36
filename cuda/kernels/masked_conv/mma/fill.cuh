// Zeros where a masked convolution without a base computes nothing, written by the CTAs that
// multiply, on devices without bulk copies. The pixels of tiles and the unset ones are disjoint: no
// order between the two.
#pragma once

#include <cstdint>

#include "cuda/tile/conv/params.h"

namespace jaxsparse {

// `Piece` zeros a lane and turn in the pixels from `out` on whose bit in `unset` is set.
template <typename Piece>
__device__ __forceinline__ void ClearPixels(char* out, uint32_t unset, uint32_t pixel_bytes) {
  const uint32_t all = (32 - __clz(unset)) * pixel_bytes;
  for (uint32_t at = threadIdx.x % 32 * sizeof(Piece); at < all; at += 32 * sizeof(Piece)) {
    if (unset >> (at / pixel_bytes) & 1) *reinterpret_cast<Piece*>(out + at) = Piece{};
  }
}

// A word of the mask a warp. `bytes`: of an element that is not float32.
__device__ inline void FillUnset(const ConvParams& p, int bytes) {
  const uint32_t row_words = (p.out_w + 31) / 32, pixel_bytes = p.out_c * (p.out_f32 ? 4 : bytes);
  const uint32_t words = static_cast<uint32_t>(p.batch) * p.out_h * row_words;
  const uint32_t warps = gridDim.x * (blockDim.x / 32);
  for (uint32_t w = (blockIdx.x * blockDim.x + threadIdx.x) / 32; w < words; w += warps) {
    const uint32_t row = w / row_words, first = (w - row * row_words) * 32;
    const uint32_t inside = 0xFFFFFFFFu >> (32 - min(p.out_w - first, 32u));
    const uint32_t unset = ~__ldg(p.words + w) & inside;
    if (unset == 0) continue;
    const int64_t pixel = static_cast<int64_t>(row) * p.out_w + first;
    char* out = static_cast<char*>(p.out) + pixel * pixel_bytes;
    if (pixel_bytes % sizeof(uint4) == 0) {
      ClearPixels<uint4>(out, unset, pixel_bytes);
    } else {
      ClearPixels<uint16_t>(out, unset, pixel_bytes);
    }
  }
}

}  // namespace jaxsparse
