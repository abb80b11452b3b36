// Launchers of the Hopper tensor-core engine of the masked convolution. Rows are the
// tensor-core rows of variants/masked_conv.toml, from 0: a variant's number less 16.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/kernels/masked_conv/args.h"

namespace jaxsparse {

// The attribute `variant` of row 0; below it are the kernels on CUDA cores: 0 direct, 1 ffma.
constexpr int64_t kFirstTensorCoreRow = 16;

// Why row `variant_row` cannot run this problem on the current device, or nullptr when it can.
const char* MaskedConvWgmmaReason(const MaskedConvArgs& args, int variant_row);

// Workspace in bytes. Float32 weights are rewritten [O, K] with K contiguous, the only order in
// which the tensor cores read TF32; rows with stream_k also need a flag per warp and a partial tile
// per CTA. In Python:
//   weights = 4*kh*kw*C*O rounded up to 256 if the dtype is float32 else 0
//   weights + (144 * (64 + 4*tile_m*tile_n) if stream_k else 0)
int64_t MaskedConvWgmmaScratchBytes(const ConvGeometry& geometry, DType in_type, int variant_row);

// Once per device, before the first launch and outside any capture: loads every variant.
cudaError_t PrepareMaskedConvWgmma();

// Writes every active pixel of the first min(count, capacity) tiles and, with args.zero_fill, zeros
// to the others; touches nothing else of `out`. One launch, one more for float32, and one more for
// zeros where the list may overflow. Device work only: no allocation, no synchronisation.
cudaError_t LaunchMaskedConvWgmma(const MaskedConvArgs& args, int variant_row, cudaStream_t stream);

}  // namespace jaxsparse
