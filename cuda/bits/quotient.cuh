// Division of 64-bit indices, at the price of a 32-bit one where both fit.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace jaxsparse {

// a / b for a >= 0, b > 0.
__device__ inline int64_t Quotient(int64_t a, int64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
  return a / b;
}

}  // namespace jaxsparse
