// The operands and the window that the two forward handlers of the masked convolution share
// (docs/kernels/contract.md).
#pragma once

#include <cstdint>

#include "cpu/kernels/masked_conv.h"
#include "xla/ffi/api/ffi.h"

namespace jaxsparse {

struct ConvWindow {
  int64_t stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
  int64_t lhs_dilation_h, lhs_dilation_w, groups, tile_h, tile_w, activation;
};

// Everything but the window and the variant, or what is wrong.
xla::ffi::ErrorOr<MaskedConvArgs> DecodeOperands(
    xla::ffi::AnyBuffer x, xla::ffi::AnyBuffer kernel, xla::ffi::Buffer<xla::ffi::S32> ids,
    xla::ffi::BufferR0<xla::ffi::S32> count, xla::ffi::BufferR3<xla::ffi::U32> words,
    xla::ffi::Buffer<xla::ffi::U32> x_words, xla::ffi::BufferR1<xla::ffi::F32> bias,
    xla::ffi::AnyBuffer base, xla::ffi::AnyBuffer residual,
    xla::ffi::Result<xla::ffi::AnyBuffer> out,
    xla::ffi::Result<xla::ffi::BufferR1<xla::ffi::U8>> scratch);

// False when an attribute is out of range; `args->variant` and the tiles' sides are set.
bool SetWindow(const ConvWindow& window, int64_t variant, MaskedConvArgs* args);

// Runs the convolution on the pool.
xla::ffi::Future RunConv(xla::ffi::ThreadPool& pool, const MaskedConvArgs& args);

}  // namespace jaxsparse
