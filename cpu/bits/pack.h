// Boolean masks to and from 32-bit words, little-endian along the last axis.
#pragma once

#include <cstdint>

namespace jaxsparse::cpu {

// mask uint8[rows, n] -> words uint32[rows, ceil(n/32)]. Any nonzero byte sets its bit; bits past n
// are zero.
void PackMask(const uint8_t* mask, int64_t rows, int64_t n, uint32_t* words);

// words uint32[rows, ceil(n/32)] -> mask uint8[rows, n] of 0 and 1. Bits past n are ignored.
void UnpackMask(const uint32_t* words, int64_t rows, int64_t n, uint8_t* mask);

}  // namespace jaxsparse::cpu
