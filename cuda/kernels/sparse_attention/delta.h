// The first step of the gradients of attention, whichever kernels compute the others.
#pragma once

#include "cuda/kernels/sparse_attention/args.h"

namespace jaxsparse {

// Loads the kernels onto the current device.
cudaError_t PrepareAttentionDelta();

// Writes g.delta; there is at least one query.
cudaError_t LaunchAttentionDelta(const AttentionGradArgs& g, DType dtype, cudaStream_t stream);

}  // namespace jaxsparse
