// Adds the partial results of the kernel gradient in a fixed order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxsparse {

// out[e] = sum over s of partial[s, e], e < elements, in an order that depends on `splits` alone.
cudaError_t LaunchDkernelReduce(const float* partial, int64_t splits, int64_t elements, float* out,
                                cudaStream_t stream);

// Loads the kernel onto the current device.
cudaError_t PrepareDkernelReduce();

}  // namespace jaxsparse
