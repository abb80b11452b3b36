// Launch of the bitmap executor. No FFI and no device headers.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/tile/pruned_args.h"

namespace jaxsparse {

inline constexpr int64_t kBitmapMostRows = 64;

// Once per device, before the first launch.
cudaError_t PreparePrunedBitmap();

// `parts` blocks (1, 2, 4 or 8) split the inputs; `pieces` of 8 values are the most of a tile.
cudaError_t LaunchPrunedBitmap(const PrunedArgs& args, int64_t parts, int64_t pieces,
                               cudaStream_t stream);

}  // namespace jaxsparse
