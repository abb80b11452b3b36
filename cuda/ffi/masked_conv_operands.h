// The operands that the two handlers of the masked convolution share (docs/kernels/contract.md),
// checked and read.
#pragma once

#include <string>

#include "cuda/ffi/common.h"

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
