// One row of variants/grouped_matmul.toml in one element type, as the launcher calls it. The
// generated translation units instantiate it from kernel.cuh.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace jaxsparse {

struct GroupedParams;

// Tensor maps of one launch. `lhs`: [rows, K] in boxes of 128 rows by 128 bytes, used where the
// rows are contiguous; `rhs`: the weights as StackLoad reads them; `second`: the other weights of a
// gated product; `out`: the sorted rows' products in boxes as BoxStore writes them, used where they
// are of 16 bits.
struct GroupedMaps {
  CUtensorMap lhs, rhs, second, out;
};

template <typename T, int TileN, int Stages>
struct GroupedMatmulVariant {
  // Raises the shared-memory limit and loads the kernels.
  static cudaError_t Prepare();

  // `k_major`: the weights lie [N, K].
  static cudaError_t Launch(const GroupedParams& p, const GroupedMaps& maps, bool k_major, int ctas,
                            cudaStream_t stream);
};

}  // namespace jaxsparse
