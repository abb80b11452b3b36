// Four rows of four floats become columns.
#pragma once

#include "cpu/isa/plain/vec.h"

namespace {

constexpr int kTransposeSide = 4;

// rows[c][l] = the former rows[l][c].
inline void TransposeSquare(Vec::Reg* rows) {
  for (int l = 0; l < kTransposeSide; ++l) {
    for (int c = l + 1; c < kTransposeSide; ++c) {
      const float kept = rows[l][c];
      rows[l][c] = rows[c][l];
      rows[c][l] = kept;
    }
  }
}

}  // namespace
