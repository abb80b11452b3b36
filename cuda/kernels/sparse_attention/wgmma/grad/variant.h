// The gradient kernels of one element type and depth, each compiled in a unit of its own (d64.cu,
// d128.cu).
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/kernels/sparse_attention/args.h"

namespace jaxsparse {

template <typename T, int Depth>
struct AttentionGradVariant {
  static cudaError_t Prepare();
  // `counters`: two int32 that are 0, or nullptr.
  static cudaError_t Launch(const AttentionGradArgs& a, DType type, int* counters, int processors,
                            cudaStream_t stream);
};

}  // namespace jaxsparse
