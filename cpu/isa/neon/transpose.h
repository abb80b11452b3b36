// Four rows of four floats become columns, in q registers.
#pragma once

#include <arm_neon.h>

#include "cpu/isa/neon/vec.h"

namespace {

constexpr int kTransposeSide = 4;

// rows[c][l] = the former rows[l][c].
inline void TransposeSquare(Vec::Reg* rows) {
  const float32x4x2_t a = vtrnq_f32(rows[0], rows[1]), b = vtrnq_f32(rows[2], rows[3]);
  rows[0] = vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0]));
  rows[1] = vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1]));
  rows[2] = vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0]));
  rows[3] = vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1]));
}

}  // namespace
