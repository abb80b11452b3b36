// A product, or a convolution, with frozen pruned weights. No FFI and no device headers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/core/activation.h"
#include "cuda/core/dtype.h"
#include "cuda/core/geometry.h"

namespace jaxsparse {

// out[m, n] = activation(x[m, k] @ w[k, n] + bias). Where `image` is set, x is an image, NHWC
// or NCHW, and its row for an output pixel is virtual: column (ky * kernel_w + kx) * in_c + c.
struct PrunedArgs {
  int64_t m, k, n;
  const void* x;
  const void* values;  // in the executor's order; padding is zero
  const float* bias;   // [n], or nullptr
  const int32_t* starts;
  const void* indices;
  const int32_t* rows;
  const uint8_t* extra;
  int64_t entries, num_starts, num_indices, num_rows, num_extra;  // of values and the arrays
  void* out;
  DType in_type, out_type;
  Activation activation;
  bool image;
  bool channels_first;  // x is [batch, in_c, in_h, in_w], out likewise
  ConvGeometry geometry;
};

}  // namespace jaxsparse
