// Launch of the pairs executor. No FFI and no device headers.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/tile/pruned_args.h"

namespace jaxsparse {

inline constexpr int64_t kPairsMostRows = 64;

// Once per device, before the first launch.
cudaError_t PreparePrunedPairs();

// Items of `tiles` tiles (1, 2 or 4), the largest with `pieces` of four pairs; `parts` blocks (1,
// 2, 4 or 8) split the inputs.
cudaError_t LaunchPrunedPairs(const PrunedArgs& args, int64_t tiles, int64_t parts, int64_t pieces,
                              cudaStream_t stream);

}  // namespace jaxsparse
