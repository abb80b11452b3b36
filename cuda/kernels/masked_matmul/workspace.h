// The workspace of a masked product as Python asks for it, while tracing.
#pragma once

#include <array>
#include <cstdint>

#include "cuda/kernels/masked_matmul/launch.h"

namespace jaxsparse {

// `sizes`: products, rows, columns, depth, lists of a, lists of b. `masks`: lists of the masks of
// a, b and the result, 0 where there is none. `a_block`: rows and columns of a's blocks. `turned`:
// `a` is given transposed.
inline int64_t MaskedMatmulWorkspace(const std::array<int64_t, 6>& sizes,
                                     const std::array<int64_t, 3>& masks,
                                     const std::array<int64_t, 2>& a_block, int dtype,
                                     bool turned) {
  static constexpr uint32_t kPresent = 0;  // never read: only whether there is a mask counts
  const auto bits = [&masks](int which) {
    return BlockBits{masks[which] == 0 ? nullptr : &kPresent, masks[which], 0, 0, 1, 1};
  };
  MaskedMatmulArgs args = {};
  args.lists = sizes[0];
  args.rows = sizes[1];
  args.columns = sizes[2];
  args.depth = sizes[3];
  args.a_lists = sizes[4];
  args.b_lists = sizes[5];
  args.a_bits = bits(0);
  args.b_bits = bits(1);
  args.out_bits = bits(2);
  args.a_bits.row_size = a_block[0];
  args.a_bits.col_size = a_block[1];
  args.in_type = static_cast<DType>(dtype);
  args.turned = turned;
  return MaskedMatmulStripsScratchBytes(args);
}

}  // namespace jaxsparse
