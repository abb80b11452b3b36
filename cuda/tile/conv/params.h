// What a tile kernel of the masked convolution knows about its problem: MaskedConvArgs in 32-bit,
// counted in units of 16 bytes.
#pragma once

#include <cstdint>

#include "cuda/core/divisor.h"

namespace jaxsparse {

inline constexpr int kUnitBytes = 16;  // one cp.async, one lane of a gathered row
inline constexpr int kStepUnits =
    8;  // units of K in one pipeline stage: 128 bytes, the swizzle's width
inline constexpr int kMaxTaps = 64;  // taps whose validity a row keeps as bits

// Where the rows of the matrix product come from: a list of tiles, or, without one, every tile in
// turn.
struct RowList {
  const int32_t* ids;    // nullptr: entry i is tile i
  const int32_t* count;  // nullptr: capacity
  int capacity, tile_h, tile_w;
  bool grid_aligned;
  Divisor tile_area, tile_width;
  Divisor grid_rows, grid_columns;  // tiles of an image
};

struct ConvParams {
  int batch, in_h, in_w, out_h, out_w, out_c;
  int kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
  int pixel_units;  // of one input pixel: channels * bytes / 16
  int k_steps;      // of 128 bytes of K; ConvKSteps
  bool taps_first;  // K runs over the taps of 128 bytes of channels, then over the channels
  bool out_f32;
  bool zero_fill;  // pixels whose bit is unset become 0
  bool plain;      // no dilation, and every input pixel counts
  Divisor by_kernel_w, by_lhs_h, by_lhs_w;
  // Lines and columns of an output image's pixels, and of its blocks of 8 x 8.
  Divisor by_out_h, by_out_w, by_blocks_h, by_blocks_w;
  uint64_t lines;  // bit t: tap t is the first of its line
  RowList list;
  const uint32_t* words;
  const uint32_t* x_words;  // nullptr: every input pixel counts
  const void* x;
  const float* bias;  // nullptr: none
  void* out;
  float* parts;     // stream_k: unfinished tiles, one a CTA
  uint64_t* flags;  // stream_k: [CTAs, consumer warps], anything but `mark` before the launch
  uint64_t mark;    // stream_k: what a flag is where a part is ready; see PartialTile
  // activation(v) = gated ? v * sigmoid(v * (gate_a + gate_b * v * v)) : min(max(v, low), high)
  bool gated;
  float gate_a, gate_b, low, high;
  const void* residual;  // like `out`, added before the activation; nullptr: none
};

}  // namespace jaxsparse
