// What the Hopper engine puts into its workspace before it runs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxsparse {

// out[o, k] = in[k, o], float32 rounded to TF32 (to nearest; the tensor cores alone would cut the
// mantissa off).
cudaError_t LaunchTransposeWeights(const float* in, float* out, int k, int o, cudaStream_t stream);

// A number for one launch's flags (PartialTile): none that another launch has, nor, but for one
// chance in 2^64 a flag, one that memory holds.
uint64_t NextMark();

// Loads the kernel onto the current device.
cudaError_t PrepareConvWorkspace();

}  // namespace jaxsparse
