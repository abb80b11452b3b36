// Divisor: a divisor that the host knows. A division by it is a multiplication and a shift, where
// the device takes about 120 cycles to divide by a number that it reads.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxsparse {

struct Divisor {
  int value;
  uint32_t magic;
  int shift;

  // floor(n / value) of n >= 0. (Granlund and Montgomery: the magic number has 33 bits, of which
  // the sum adds the first; it does not overflow below 2^31.)
  __device__ __forceinline__ int Quotient(int n) const {
    const uint32_t u = static_cast<uint32_t>(n);
    return static_cast<int>((__umulhi(u, magic) + u) >> shift);
  }
  __device__ __forceinline__ int Quotient(int n, int* remainder) const {
    const int quotient = Quotient(n);
    *remainder = n - quotient * value;
    return quotient;
  }
};

// `value` below 2^31; 1 where it is not positive.
inline Divisor MakeDivisor(int64_t value) {
  const uint64_t d = value < 1 ? 1 : static_cast<uint64_t>(value);
  int shift = 0;
  while (uint64_t{1} << shift < d) ++shift;
  const uint64_t magic = ((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d)) / d + 1;
  return {static_cast<int>(d), static_cast<uint32_t>(magic), shift};
}

}  // namespace jaxsparse
