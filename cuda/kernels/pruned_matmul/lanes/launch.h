// Launch of the lanes executor. No FFI and no device headers.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/tile/pruned_args.h"

namespace jaxsparse {

inline constexpr int64_t kLanesMostRows = 16;

// Once per device, before the first launch.
cudaError_t PreparePrunedLanes();

// Blocks of `strips` (1, 2, 4 or 8) times 32 outputs; `parts` of them (1, 2, 4 or 8) split the
// inputs. The arrays are packed for both.
cudaError_t LaunchPrunedLanes(const PrunedArgs& args, int64_t strips, int64_t parts,
                              cudaStream_t stream);

}  // namespace jaxsparse
