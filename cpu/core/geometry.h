// The shapes and the window of a convolution.
#pragma once

#include <cstdint>

namespace jaxsparse {

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

}  // namespace jaxsparse
