// A product of which blocks are wanted, `out = mask * (a b^T)`, both operands with K contiguous.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/kernels/masked_matmul/launch.h"

namespace jaxsparse {

// `args` as they are for masked_matmul, but `b` is [Lb, n, k]; masks on a and b are absent. The
// reason why it cannot run, or nullptr.
const char* SampledMatmulReason(const MaskedMatmulArgs& args);
int64_t SampledMatmulScratchBytes(const MaskedMatmulArgs& args);
cudaError_t LaunchSampledMatmul(const MaskedMatmulArgs& args, cudaStream_t stream);
cudaError_t PrepareSampledMatmul();

}  // namespace jaxsparse
