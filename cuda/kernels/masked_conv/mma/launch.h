// Launchers of the mma.sync engine of the masked convolution, for devices from sm_80 on. A variant
// is the `number` of a row of variants/masked_conv_mma.toml.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/kernels/masked_conv/args.h"

namespace jaxsparse {

// Whether `variant` is a row of the table.
bool IsMaskedConvMma(int64_t variant);

// Why the row cannot run this problem on the current device, or nullptr when it can.
const char* MaskedConvMmaReason(const MaskedConvArgs& args, int64_t variant);

// Workspace in bytes, the same for every row. Float32 weights are rewritten [O, K], rounded to
// TF32; where a pixel or a row of weights is not a multiple of 16 bytes, 16-bit ones are rewritten
// with both filled up.
int64_t MaskedConvMmaScratchBytes(const ConvGeometry& geometry, DType in_type);

// Once per device, before the first launch and outside any capture: loads every variant.
cudaError_t PrepareMaskedConvMma();

// Writes every active pixel of the first min(count, capacity) tiles and, with args.zero_fill, zeros
// to the others; touches nothing else of `out`. One launch, one more where weights are rewritten,
// and one more for zeros where the list may overflow. Device work only: no allocation, no
// synchronisation.
cudaError_t LaunchMaskedConvMma(const MaskedConvArgs& args, int64_t variant, cudaStream_t stream);

}  // namespace jaxsparse
