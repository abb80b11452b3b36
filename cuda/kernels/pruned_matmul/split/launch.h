// Launch of the split executor (docs/kernels/pruned_gpu.md).
#pragma once

#include <cstdint>

#include "cuda/tile/pruned_args.h"

namespace jaxsparse {

// Raises shared-memory limits; once per device.
cudaError_t PreparePrunedSplit();

// `rows` of a lane (1, 2 or 4), `inputs` of a block (128 or 256), `outputs` of a round (a power of
// two from 16 to 128), `rounds` of a group, `parts` blocks of a cluster.
cudaError_t LaunchPrunedSplit(const PrunedArgs& args, int64_t rows, int64_t inputs, int64_t outputs,
                              int64_t rounds, int64_t parts, cudaStream_t stream);

}  // namespace jaxsparse
