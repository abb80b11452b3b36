// Eight rows of eight floats become columns, in ymm registers.
#pragma once

#include "cpu/isa/avx2/vec.h"

namespace {

constexpr int kTransposeSide = 8;

// rows[c][l] = the former rows[l][c].
inline void TransposeSquare(Vec::Reg* rows) {
  __m256 pairs[8], quads[8];
#pragma GCC unroll 16
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 8; i += 4) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      quads[i + 2 * h] = _mm256_shuffle_ps(pairs[i + h], pairs[i + h + 2], 0x44);
      quads[i + 2 * h + 1] = _mm256_shuffle_ps(pairs[i + h], pairs[i + h + 2], 0xee);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20);
    rows[i + 4] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31);
  }
}

}  // namespace
