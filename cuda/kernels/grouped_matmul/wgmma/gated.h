// Launcher of the gated grouped product on Hopper's tensor cores.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/kernels/grouped_matmul/args.h"

namespace jaxsparse {

// silu(x @ gate) * (x @ up): args.rhs is `gate`, `up` the other weights, both [g, k, n]; no row
// weights, and nothing is added up. 16-bit operands.
struct GroupedGatedArgs {
  GroupedMatmulArgs product;
  const void* up;
};

const char* GroupedGatedReason(const GroupedGatedArgs& args);
int64_t GroupedGatedScratchBytes(const GroupedGatedArgs& args);
cudaError_t PrepareGroupedGated();
cudaError_t LaunchGroupedGated(const GroupedGatedArgs& args, cudaStream_t stream);

}  // namespace jaxsparse
