// Launches of the data-driven executor. No FFI and no device headers.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/tile/pruned_args.h"

namespace jaxsparse {

inline constexpr int kRowsMostWarps = 16;  // of a block

// Once per device, before the first launch.
cudaError_t PreparePrunedRows();

// Variant `variant` of variants/pruned_rows.toml, in blocks of `warps` warps; the arrays are those
// that it was packed for.
cudaError_t LaunchPrunedRows(const PrunedArgs& args, int64_t variant, int64_t warps,
                             cudaStream_t stream);

}  // namespace jaxsparse
