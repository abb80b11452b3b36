// The workspace of a sampled product as Python asks for it, while tracing.
#pragma once

#include <array>
#include <cstdint>

#include "cuda/kernels/masked_matmul/sampled/launch.h"

namespace jaxsparse {

// `sizes`: products, rows, columns, depth, lists of a, lists of b. `out_block`: rows and columns of
// the blocks of the mask on the result, which has `out_lists` lists.
inline int64_t SampledMatmulWorkspace(const std::array<int64_t, 6>& sizes, int64_t out_lists,
                                      const std::array<int64_t, 2>& out_block, int dtype) {
  static constexpr uint32_t kPresent = 0;  // never read
  MaskedMatmulArgs args = {};
  args.lists = sizes[0];
  args.rows = sizes[1];
  args.columns = sizes[2];
  args.depth = sizes[3];
  args.a_lists = sizes[4];
  args.b_lists = sizes[5];
  args.out_bits = {&kPresent, out_lists, 0, 0, out_block[0], out_block[1]};
  args.in_type = static_cast<DType>(dtype);
  return SampledMatmulScratchBytes(args);
}

}  // namespace jaxsparse
