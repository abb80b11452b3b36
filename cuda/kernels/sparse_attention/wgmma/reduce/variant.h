// The reducing gradient kernel of one element type and depth, each compiled in a unit of its own.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/kernels/sparse_attention/args.h"

namespace jaxsparse {

template <typename T, int Depth>
struct AttentionReduceVariant {
  static cudaError_t Prepare();
  // `sums`: AttentionSumBytes of zeros in scratch memory. `counter`: an int32 that is 0.
  static cudaError_t Launch(const AttentionGradArgs& a, DType type, float* sums, int* counter,
                            int processors, cudaStream_t stream);
};

}  // namespace jaxsparse
