// One row of variants/masked_conv.toml in one element type, as the launcher calls it. The generated
// translation units instantiate it from variant.cuh.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "cuda/tile/conv/box_plan.h"
#include "cuda/tile/conv/params.h"

namespace jaxsparse {

// The weights: [K, O] (16-bit, boxes of 64 x 64) or [O, K] (32-bit, boxes of 64 x 32). Rows that
// load boxes also get the image and its plan.
struct ConvMaps {
  CUtensorMap weights, image;
  BoxPlan plan;
};

template <typename T, int TileM, int TileN, int Stages, int Cluster, int SplitK, int StreamK,
          int Box>
struct MaskedConvVariant {
  // Raises the shared-memory limit, loads the kernel, and says how many clusters the current device
  // holds at once.
  static cudaError_t Prepare(int* clusters);

  static cudaError_t Launch(const ConvParams& p, const ConvMaps& maps, int clusters,
                            cudaStream_t stream);
};

}  // namespace jaxsparse
