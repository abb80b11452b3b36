// The masked convolution in float32 arithmetic at the rate of the CUDA cores: float32 with
// precision `highest`.
//
// Families of the masked convolution (attribute `variant`) and what each takes:
//   0 direct  everything; float32 sums of products of the stored values. No workspace.
//   1 ffma    float32 in and out, groups == 1, C % 4 == 0, O % 4 == 0. No workspace.
//   16 + r    row r of the tensor-core engine (wgmma/launch.h).
#pragma once

#include "cuda/kernels/masked_conv/args.h"

namespace jaxsparse {

// Why this family cannot run, or nullptr when it can.
const char* MaskedConvFfmaReason(const MaskedConvArgs& args);

// Writes the listed active pixels of args.out. args.scratch is not used.
cudaError_t LaunchMaskedConvFfma(const MaskedConvArgs& args, cudaStream_t stream);

// Loads every variant onto the current device.
cudaError_t PrepareMaskedConvFfma();

}  // namespace jaxsparse
