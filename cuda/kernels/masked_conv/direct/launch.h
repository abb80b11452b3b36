// The masked convolution that takes every dtype, shape, group count and tile: on CUDA cores, but
// for one to four 16-bit input channels (narrow.h).
#pragma once

#include "cuda/kernels/masked_conv/args.h"

namespace jaxsparse {

// Writes the listed active pixels of args.out. args.scratch is not used.
cudaError_t LaunchMaskedConvDirect(const MaskedConvArgs& args, cudaStream_t stream);

// Loads every variant onto the current device.
cudaError_t PrepareMaskedConvDirect();

}  // namespace jaxsparse
