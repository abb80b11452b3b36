// One row of variants/masked_conv_dkernel.toml in one element type, as the launcher calls it. The
// generated translation units instantiate it from variant.cuh.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/kernels/masked_conv/dkernel/wgmma/params.cuh"

namespace jaxsparse {

template <typename T, int TileM, int TileN, int Stages, int Groups>
struct DkernelVariant {
  // Raises the shared-memory limit and loads the kernel onto the current device.
  static cudaError_t Prepare();

  static cudaError_t Launch(const DkernelParams& p, cudaStream_t stream);
};

}  // namespace jaxsparse
