// The pixels that some active output pixel of a convolution reads, from bits to bits.
#pragma once

#include <cstdint>

namespace jaxsparse::cpu {

// One axis of a convolution: input pixel n is read by output pixel o through tap k where
// n * lhs_dilation + pad = o * stride + k * dilation.
struct ReachAxis {
  int64_t taps, stride, pad, dilation, lhs_dilation;
};

// Packed masks of `images` images: of the output, uint32[images, out_height, ceil(out_width/32)],
// and of the input, uint32[images, height, ceil(width/32)].
struct ReachShape {
  int64_t images, out_height, out_width, height, width;
  ReachAxis rows, columns;
};

// Writes the input's mask; of its pixels only those in `keep`, where that is not null.
void ReachMask(const ReachShape& shape, const uint32_t* words, const uint32_t* keep, uint32_t* out);

}  // namespace jaxsparse::cpu
