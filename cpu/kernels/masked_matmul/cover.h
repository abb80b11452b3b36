// The choice of the tile: how many columns the strips of each height need to cover a mask, times
// what one costs. Cover cost after SparDA, Algorithm 2, on strips sampled from the given mask.
#pragma once

#include "cpu/kernels/masked_matmul/args.h"
#include "cpu/kernels/masked_matmul/variants.h"

namespace jaxsparse {

// The number of the variant with the least cover cost of the left operand's mask.
int64_t LeastCover(const MaskedMatmulArgs& args, bool wide_file);

// Rows that a strip of tile height `height` takes from one row on: whole mask blocks, or a part of
// one.
inline int64_t StripRows(const BlockBits& bits, int64_t height) {
  if (bits.all() || bits.row_size >= height) return height;
  return height / bits.row_size * bits.row_size;
}

}  // namespace jaxsparse
