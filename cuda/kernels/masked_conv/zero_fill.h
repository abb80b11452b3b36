// Zeros where a masked convolution without a base computes nothing.
#pragma once

#include "cuda/kernels/masked_conv/args.h"

namespace jaxsparse {

// Writes 0 to every pixel of args.out whose bit in `words` is unset, and to all pixels when more
// tiles are active than the list holds, or when it lists origins: these may leave out pixels that
// are set. A pixel whose bit is set is left to the convolution otherwise: a list of the grid must
// name every tile of `words`.
cudaError_t LaunchZeroFill(const MaskedConvArgs& args, cudaStream_t stream);

// Loads every variant onto the current device.
cudaError_t PrepareZeroFill();

}  // namespace jaxsparse
