// Launch of the vectors executor. No FFI and no device headers.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/kernels/pruned_matmul.h"

namespace jaxsparse {

// Once per device, before the first launch.
cudaError_t PreparePrunedVectors();

cudaError_t LaunchPrunedVectors(const PrunedArgs& args, cudaStream_t stream);

}  // namespace jaxsparse
