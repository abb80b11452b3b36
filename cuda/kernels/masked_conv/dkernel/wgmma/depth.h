// The kernels before and behind the products of the Hopper kernel gradient: the pixels of K, and
// the sum of a tile's parts.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/kernels/masked_conv/dkernel/wgmma/params.cuh"

namespace jaxsparse {

// Writes p.pixels: a row a pixel slot of the listed tiles, in whole steps.
cudaError_t LaunchDkernelPixels(const DkernelParams& p, DepthPixel* pixels, cudaStream_t stream);

// Adds the parts of every tile that was cut, in the order of the workers; zeros where there is no
// pixel at all.
cudaError_t LaunchDkernelSum(const DkernelParams& p, cudaStream_t stream);

// Loads both kernels onto the current device.
cudaError_t PrepareDkernelDepth();

}  // namespace jaxsparse
