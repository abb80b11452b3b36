// Sixteen rows of sixteen floats become columns, in zmm registers.
#pragma once

#include "cpu/isa/avx512/vec.h"

namespace {

constexpr int kTransposeSide = 16;

// rows[c][l] = the former rows[l][c].
inline void TransposeSquare(Vec::Reg* rows) {
  __m512 pairs[16], quads[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m512d low = _mm512_castps_pd(pairs[i + h]), high = _mm512_castps_pd(pairs[i + h + 2]);
      quads[i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
      quads[i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; ++i) {
    pairs[i] = _mm512_shuffle_f32x4(quads[i], quads[i + 4], 0x88);
    pairs[i + 4] = _mm512_shuffle_f32x4(quads[i], quads[i + 4], 0xdd);
    pairs[i + 8] = _mm512_shuffle_f32x4(quads[i + 8], quads[i + 12], 0x88);
    pairs[i + 12] = _mm512_shuffle_f32x4(quads[i + 8], quads[i + 12], 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 8; ++i) {
    rows[i] = _mm512_shuffle_f32x4(pairs[i], pairs[i + 8], 0x88);
    rows[i + 8] = _mm512_shuffle_f32x4(pairs[i], pairs[i + 8], 0xdd);
  }
}

}  // namespace
