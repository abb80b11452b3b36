// One row of variants/pruned_rows.toml in one element type, as the launcher calls it. The generated
// translation units instantiate it from variant.cuh.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/tile/pruned_args.h"

namespace jaxsparse {

template <typename T, int Rows, int Chunk, int Outputs>
struct PrunedRowsVariant {
  // Raises the shared-memory limits and loads the kernels.
  static cudaError_t Prepare();

  // A block is `warps` warps.
  static cudaError_t Launch(const PrunedArgs& args, int warps, cudaStream_t stream);
};

}  // namespace jaxsparse
