// One row of variants/masked_conv.toml in one element type, as the launcher calls it. The generated
// translation units instantiate it from masked_conv_wgmma.cuh.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "cuda/tile/conv_params.h"

namespace jaxsparse {

template <typename T, int TileM, int TileN, int Stages, int Cluster, int SplitK, int StreamK>
struct MaskedConvVariant {
  // Raises the shared-memory limit, loads the kernel, and says how many clusters the current device
  // holds at once.
  static cudaError_t Prepare(int* clusters);

  // `weights` maps [K, O] (16-bit, boxes of 64 x 64) or [O, K] (32-bit, boxes of 64 x 32).
  static cudaError_t Launch(const ConvParams& p, const CUtensorMap& weights, int clusters,
                            cudaStream_t stream);
};

}  // namespace jaxsparse
