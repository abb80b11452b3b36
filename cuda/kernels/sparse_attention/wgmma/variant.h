// The kernels of one element type and depth, each compiled in a unit of its own (d64.cu, d128.cu).
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/kernels/sparse_attention/wgmma/params.cuh"
#include "cuda/kernels/sparse_attention/wgmma/setup.h"

namespace jaxsparse {

// Two warpgroups with one list of keys, or each with a list of its own.
inline constexpr AttentionTile kSharedTile = {128, 128, 1}, kOwnTile = {64, 128, 2};

// Depth of q, k and v.
template <typename T, int Depth>
struct AttentionVariant {
  static cudaError_t Prepare();
  static cudaError_t Launch(const AttentionParams& p, const AttentionMaps& maps, bool shared,
                            int ctas, cudaStream_t stream);
};

}  // namespace jaxsparse
