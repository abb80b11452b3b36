// The workspace of a product with a fine mask as Python asks for it, while tracing.
#pragma once

#include <array>
#include <cstdint>

#include "cuda/kernels/masked_matmul/fine/launch.h"

namespace jaxsparse {

// `sizes`: products, rows, columns, depth, lists of a, lists of b. The mask on a has `a_masks`
// lists.
inline int64_t FineMatmulWorkspace(const std::array<int64_t, 6>& sizes, int64_t a_masks,
                                   int dtype) {
  static constexpr uint32_t kPresent = 0;  // never read
  MaskedMatmulArgs args = {};
  args.lists = sizes[0];
  args.rows = sizes[1];
  args.columns = sizes[2];
  args.depth = sizes[3];
  args.a_lists = sizes[4];
  args.b_lists = sizes[5];
  args.a_bits = {&kPresent, a_masks, 0, 0, 1, 1};
  args.in_type = static_cast<DType>(dtype);
  return FineMatmulScratchBytes(args);
}

}  // namespace jaxsparse
