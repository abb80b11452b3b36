// A product with a fine mask on `a`, `out = (mask * a) b`: blocks of few rows, of any width.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/kernels/masked_matmul/launch.h"

namespace jaxsparse {

// The reason why it cannot run, or nullptr. Masks on b and on the result must be absent.
const char* FineMatmulReason(const MaskedMatmulArgs& args);
int64_t FineMatmulScratchBytes(const MaskedMatmulArgs& args);
cudaError_t LaunchFineMatmul(const MaskedMatmulArgs& args, cudaStream_t stream);
cudaError_t PrepareFineMatmul();

}  // namespace jaxsparse
