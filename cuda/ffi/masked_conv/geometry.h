// The window's attributes and the geometry that the handlers of the masked convolution check.
#pragma once

#include <cstdint>
#include <string>

#include "cuda/ffi/common.h"
#include "cuda/kernels/masked_conv/args.h"

namespace jaxsparse {

// Attributes that the forward and its gradients share, as they arrive.
struct WindowAttrs {
  int64_t stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
  int64_t lhs_dilation_h, lhs_dilation_w, groups, tile_h, tile_w;
};

// Fills geometry and tile list; returns what is wrong, or an empty string. Every coordinate and
// every pixel slot of the list must fit in 31 bits; offsets into tensors need not.
std::string ReadGeometry(const ffi::AnyBuffer& x, const int64_t (&kernel)[4],
                         const int64_t (&out)[4], const ffi::AnyBuffer& ids,
                         const ffi::AnyBuffer& count, const ffi::AnyBuffer& words,
                         const WindowAttrs& attrs, ConvGeometry* geometry, TileList* tiles);

}  // namespace jaxsparse
