// A masked convolution in the terms of the mma.sync engine: its parameters, and the weights where
// it cannot read them in their own layout.
#pragma once

#include "cuda/kernels/masked_conv/args.h"
#include "cuda/kernels/masked_conv/mma/params.h"

namespace jaxsparse {

// The engine's parameters; `conv.zero_fill` and the weights are left for the caller.
MmaParams MakeMmaParams(const MaskedConvArgs& args);

// Bytes of the rewritten weights; 0 where the kernel's own are read.
int64_t MmaWeightBytes(const ConvGeometry& geometry, DType type);

// Rewrites them at the front of the scratch by one launch, if they must be, and says where they
// are.
cudaError_t PlaceMmaWeights(const MaskedConvArgs& args, MmaParams* p, cudaStream_t stream);

cudaError_t PrepareMmaWeights();

}  // namespace jaxsparse
