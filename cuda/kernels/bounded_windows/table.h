// What each window of decided pixels gives. No FFI and no device headers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/core/activation.h"
#include "cuda/core/dtype.h"

namespace jaxsparse {

struct BoundedTableArgs {
  int64_t taps, channels, outputs;
  const void* kernel;  // [taps, channels, outputs] of `in`
  const float* bias;   // [outputs], or nullptr
  DType in, out;
  Activation activation;
  float upper;
  void* table;  // [2^taps, outputs] of `out`
};

cudaError_t LaunchBoundedTable(const BoundedTableArgs& args, cudaStream_t stream);

}  // namespace jaxsparse
