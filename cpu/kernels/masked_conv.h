// What the handlers hand to the CPU masked convolution. No FFI headers.
#pragma once

#include <cstdint>

namespace jaxsparse {

enum class DType : int { kF32, kBF16, kF16 };
enum class Activation : int { kNone, kRelu, kRelu6, kSilu, kGelu };

inline int64_t SizeOf(DType type) { return type == DType::kF32 ? 4 : 2; }

// Tap (ky, kx) of output (oy, ox) reads n = oy*stride_h + ky*dilation_h - pad_top, which exists
// when n is a non-negative multiple of lhs_dilation_h below in_h*lhs_dilation_h; columns likewise.
struct ConvGeometry {
  int64_t batch, in_h, in_w, in_c, out_h, out_w, out_c;
  int64_t kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
  int64_t lhs_dilation_h, lhs_dilation_w, groups;

  int64_t taps() const { return kernel_h * kernel_w; }
  int64_t group_in() const { return in_c / groups; }
  int64_t group_out() const { return out_c / groups; }
  int64_t out_rows() const { return batch * out_h; }
  int64_t out_row_words() const { return (out_w + 31) / 32; }
  int64_t in_row_words() const { return (in_w + 31) / 32; }
  // One input channel and one output channel a group: products run over channels, not over a
  // group's inputs.
  bool depthwise() const { return groups > 1 && in_c == groups && out_c == groups; }
};

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
