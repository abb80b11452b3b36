// The operands that the two handlers of the masked convolution share (docs/contract.md),
// checked and read.
#pragma once

#include <string>

#include "cuda/ffi/common.h"
#include "cuda/ffi/masked_conv/geometry.h"

// The members of WindowAttrs, in its order, for handlers whose attributes begin with them.
#define JAXSPARSE_STEP_MEMBERS                                                                     \
  ::xla::ffi::StructMember<int64_t>("stride_h"), ::xla::ffi::StructMember<int64_t>("stride_w"),    \
      ::xla::ffi::StructMember<int64_t>("pad_top"), ::xla::ffi::StructMember<int64_t>("pad_left"), \
      ::xla::ffi::StructMember<int64_t>("dilation_h"),                                             \
      ::xla::ffi::StructMember<int64_t>("dilation_w")
#define JAXSPARSE_TILE_MEMBERS                                                              \
  ::xla::ffi::StructMember<int64_t>("groups"), ::xla::ffi::StructMember<int64_t>("tile_h"), \
      ::xla::ffi::StructMember<int64_t>("tile_w")
#define JAXSPARSE_WINDOW_MEMBERS                                               \
  JAXSPARSE_STEP_MEMBERS, ::xla::ffi::StructMember<int64_t>("lhs_dilation_h"), \
      ::xla::ffi::StructMember<int64_t>("lhs_dilation_w"), JAXSPARSE_TILE_MEMBERS

namespace jaxsparse {

struct MaskedConvOperands {
  const ffi::AnyBuffer &x, &kernel, &words, &x_words, &bias, &base, &residual, &out, &scratch;
  int64_t activation, precision;
};

// Shapes, dtypes and alignment of every operand but the window's; returns what is wrong, or an
// empty string.
std::string CheckOperands(const MaskedConvOperands& o);

// Everything of `args` but its geometry and tiles.
void ReadOperands(const MaskedConvOperands& o, MaskedConvArgs* args);

// `base` is in the result already wherever XLA kept the alias; where it gave the two buffers of
// their own (a constant of a loop), it is copied.
cudaError_t PlaceBase(const MaskedConvOperands& o, cudaStream_t stream);

}  // namespace jaxsparse
