// Launchers of the grouped products on CUDA cores: every shape, every dtype, float32 arithmetic.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/kernels/grouped_matmul/args.h"

namespace jaxsparse {

int64_t GroupedDirectScratchBytes(const GroupedMatmulArgs& args);
cudaError_t LaunchGroupedDirect(const GroupedMatmulArgs& args, cudaStream_t stream);

int64_t GroupedDrhsScratchBytes(const GroupedDrhsArgs& args);
cudaError_t LaunchGroupedDrhsDirect(const GroupedDrhsArgs& args, cudaStream_t stream);

// Once per device, before the first launch and outside any capture.
cudaError_t PrepareGroupedDirect();

}  // namespace jaxsparse
