// The masked convolution of one to four 16-bit input channels on mma.sync: part of the variant
// `direct`, which takes every problem.
#pragma once

#include "cuda/kernels/masked_conv/args.h"

namespace jaxsparse {

// Whether the narrow kernel takes the problem: few channels in, whole vectors of 16 bytes out, one
// group, a window of at most 64 inputs, and an input that is neither masked nor dilated.
bool MaskedConvIsNarrow(const MaskedConvArgs& args);

// Writes the listed active pixels of args.out. args.scratch is not used.
cudaError_t LaunchMaskedConvNarrow(const MaskedConvArgs& args, cudaStream_t stream);

// Loads every variant onto the current device.
cudaError_t PrepareMaskedConvNarrow();

}  // namespace jaxsparse
