// Launch of the runs executor. No FFI and no device headers.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/tile/pruned_args.h"

namespace jaxsparse {

inline constexpr int64_t kRunsMostRows = 16;

// Once per device, before the first launch.
cudaError_t PreparePrunedRuns();

// Blocks of `warps` warps with `chunks` runs a thread, places of `bits` (4 or 8); `parts` blocks
// (1, 2, 4 or 8) split the inputs.
cudaError_t LaunchPrunedRuns(const PrunedArgs& args, int64_t warps, int64_t bits, int64_t chunks,
                             int64_t parts, cudaStream_t stream);

}  // namespace jaxsparse
