// The shapes and the window of a convolution, on the host.
#pragma once

#include <cstdint>

namespace jaxsparse {

// Tap (ky, kx) of output (oy, ox) reads n = oy*stride_h + ky*dilation_h - pad_top, which
// exists when n is a non-negative multiple of lhs_dilation_h below in_h*lhs_dilation_h; columns
// likewise.
struct ConvGeometry {
  int64_t batch, in_h, in_w, in_c, out_h, out_w, out_c;
  int kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
  int lhs_dilation_h, lhs_dilation_w, groups;
};

}  // namespace jaxsparse
