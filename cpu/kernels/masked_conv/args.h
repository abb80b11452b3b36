// What the handlers hand to the CPU masked convolution. No FFI headers.
#pragma once

#include <cstdint>

#include "contracts/enums.gen.h"
#include "cpu/core/dtype.h"
#include "cpu/core/geometry.h"

namespace jaxsparse {

struct ConvTiles {
  const int32_t* ids;  // [capacity], or [capacity, 3] = (b, y0, x0) when !grid_aligned
  int64_t count;       // may exceed capacity
  int64_t capacity;
  int64_t tile_h, tile_w;
  bool grid_aligned;
  const uint32_t* words;  // [batch, out_h, ceil(out_w/32)]
  bool every;             // no list: every pixel of the mask
};

struct MaskedConvArgs {
  ConvGeometry geometry;
  ConvTiles tiles;
  DType in_type, out_type;
  Activation activation;
  int64_t variant;
  const void* x;            // [batch, in_h, in_w, in_c]
  const void* kernel;       // [kernel_h, kernel_w, in_c/groups, out_c]
  const uint32_t* x_words;  // nullptr: every input pixel counts
  const float* bias;        // nullptr: none
  const void* residual;     // [batch, out_h, out_w, out_c] of out_type; nullptr: none
  bool zero_fill;           // no base: write 0 to every pixel that no tile computes
  void* out;                // [batch, out_h, out_w, out_c]
  void* scratch;
  int64_t scratch_bytes;
};

struct MaskedConvDkernelArgs {
  ConvGeometry geometry;  // lhs_dilation is 1
  ConvTiles tiles;        // grid_aligned
  DType x_type, gy_type;
  int64_t variant;
  const void* x;   // [batch, in_h, in_w, in_c]
  const void* gy;  // [batch, out_h, out_w, out_c]
  float* dkernel;  // [kernel_h, kernel_w, in_c/groups, out_c]
  void* scratch;
  int64_t scratch_bytes;
};

}  // namespace jaxsparse
