// What the Hopper engine puts into its workspace before it runs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxsparse {

// out[o, k] = in[k, o], float32 rounded to TF32 (to nearest; the tensor cores alone would cut the
// mantissa off).
cudaError_t LaunchTransposeWeights(const float* in, float* out, int k, int o, cudaStream_t stream);

// flags[0, count) = 0.
cudaError_t LaunchClearFlags(uint32_t* flags, int count, cudaStream_t stream);

// Loads both kernels onto the current device.
cudaError_t PrepareConvWorkspace();

}  // namespace jaxsparse
