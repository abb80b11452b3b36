// Boolean masks to and from 32-bit words on the device, little-endian along the last axis.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxsparse {

// mask uint8[rows, n] -> words uint32[rows, ceil(n/32)]. Any nonzero byte sets its bit; bits past n
// are zero.
cudaError_t PackMask(const uint8_t* mask, int64_t rows, int64_t n, uint32_t* words,
                     cudaStream_t stream);

// words uint32[rows, ceil(n/32)] -> mask uint8[rows, n] of 0 and 1. Bits past n are ignored.
cudaError_t UnpackMask(const uint32_t* words, int64_t rows, int64_t n, uint8_t* mask,
                       cudaStream_t stream);

}  // namespace jaxsparse
