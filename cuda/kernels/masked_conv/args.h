// Host-side description of one masked convolution: what a handler hands to a launcher. No FFI and
// no device headers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/core/activation.h"
#include "cuda/core/dtype.h"
#include "cuda/core/geometry.h"

namespace jaxsparse {

// The list of active tiles, on the device. `words` is the packed output mask, uint32[batch, out_h,
// ceil(out_w/32)].
struct TileList {
  const int32_t* ids;    // [capacity], or [capacity, 3] = (b, y0, x0) when !grid_aligned
  const int32_t* count;  // [1]; may exceed capacity
  int64_t capacity;
  int tile_h, tile_w;
  bool grid_aligned;
  const uint32_t* words;
};

struct MaskedConvArgs {
  ConvGeometry geometry;
  TileList tiles;
  DType in_type, out_type;
  Activation activation;
  bool highest;             // float32 products in float32, not TF32
  const void* x;            // [batch, in_h, in_w, in_c]
  const void* kernel;       // [kernel_h, kernel_w, in_c/groups, out_c]
  const uint32_t* x_words;  // nullptr: every input pixel counts
  const float* bias;        // nullptr: none
  bool zero_fill;           // no base: write 0 to every pixel that no tile computes
  void* out;                // [batch, out_h, out_w, out_c]
  void* scratch;
  int64_t scratch_bytes;
  const void* residual;  // [batch, out_h, out_w, out_c] of out_type; nullptr: none
};

}  // namespace jaxsparse
