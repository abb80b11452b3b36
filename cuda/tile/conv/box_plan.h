// BoxPlan: how the taps of a window share boxes of input pixels. A box holds what an 8 x 8 block of
// output pixels reads at some taps; each of those taps is the same box from another row on, since a
// row of the box is a row of the tensor core's operand. So a 3x3 window costs 1.6 reads a pixel and
// channel in place of 9.
//
// A row holds 128 bytes of a pixel's channels, or the whole of a pixel of 64 bytes; a step of K is
// one tap of it.
//
// Stride 1: one box of (7 + kernel_h) x (7 + kernel_w) pixels serves every tap. Stride 2: one box
// a parity of (ky, kx), every second pixel. Windows whose box would be too large: one box a tap.
#pragma once

#include <cstdint>

#include "cuda/tile/conv/params.h"

namespace jaxsparse {

inline constexpr int kBlockSide = 8;
inline constexpr int kBlockRows = kBlockSide * kBlockSide;  // one block: 64 rows of the product
inline constexpr int kBoxBytes = 13 * 1024;  // room for one box: 10 x 10 pixels of 128 bytes
inline constexpr int kBoxRowBytes = 128, kNarrowRowBytes = 64;

struct BoxStep {
  uint16_t tap;
  uint16_t shift;  // where in the box the tap's operand starts, in units of 16 bytes
  int32_t dy, dx;  // of the box, from the block's first pixel times the stride
  uint32_t opens;  // the first tap of a box
};

struct BoxPlan {
  int height, width;  // of a box, in pixels
  int bytes, line_bytes, row_bytes;
  int k_steps;              // taps, for each row's worth of channels
  BoxStep steps[kMaxTaps];  // of a row's worth of channels, in order
};

// The plan of a window; its sides are at most 32, and lhs_dilation is 1.
inline BoxPlan MakeBoxPlan(const ConvParams& p) {
  const bool narrow = p.pixel_units * kUnitBytes == kNarrowRowBytes;
  const int row_bytes = narrow ? kNarrowRowBytes : kBoxRowBytes;
  const int most_pixels = kBoxBytes / row_bytes;
  int group_h =
      p.dilation_h == 1 ? p.stride_h : p.kernel_h;  // taps ky and ky + group_h share boxes
  int group_w = p.dilation_w == 1 ? p.stride_w : p.kernel_w;
  const auto side = [](int taps, int group) { return kBlockSide + (taps - 1) / group; };
  if (side(p.kernel_h, group_h) * side(p.kernel_w, group_w) > most_pixels) {
    group_h = p.kernel_h;
    group_w = p.kernel_w;
  }
  BoxPlan plan = {};
  plan.height = side(p.kernel_h, group_h);
  plan.width = side(p.kernel_w, group_w);
  plan.row_bytes = row_bytes;
  plan.k_steps = p.kernel_h * p.kernel_w * (p.pixel_units * kUnitBytes / row_bytes);
  plan.line_bytes = plan.width * row_bytes;
  plan.bytes = plan.height * plan.line_bytes;
  BoxStep* step = plan.steps;
  for (int y = 0; y < group_h && y < p.kernel_h; ++y) {
    for (int x = 0; x < group_w && x < p.kernel_w; ++x) {
      for (int ky = y; ky < p.kernel_h; ky += group_h) {
        for (int kx = x; kx < p.kernel_w; kx += group_w) {
          const int row = ky / group_h * plan.width + kx / group_w;
          step->tap = static_cast<uint16_t>(ky * p.kernel_w + kx);
          step->shift = static_cast<uint16_t>(row * row_bytes / kUnitBytes);
          step->dy = y * p.dilation_h;
          step->dx = x * p.dilation_w;
          step->opens = ky == y && kx == x;
          ++step;
        }
      }
    }
  }
  return plan;
}

}  // namespace jaxsparse
