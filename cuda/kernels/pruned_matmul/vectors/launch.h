// Launch of the vectors executor. No FFI and no device headers.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/tile/pruned_args.h"

namespace jaxsparse {

// Once per device, before the first launch.
cudaError_t PreparePrunedVectors();

// `groups` of 8 outputs a warp: 1, 2 or 4; `window`: chunks of inputs that a step may reach back
// to, its own included.
cudaError_t LaunchPrunedVectors(const PrunedArgs& args, int64_t groups, int64_t window,
                                cudaStream_t stream);

}  // namespace jaxsparse
