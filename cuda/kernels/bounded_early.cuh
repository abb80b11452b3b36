// Launches of kernels that call WaitForPrevious in every thread: before the kernel in front is done
// where the device can, else behind it.
#pragma once

#include <cuda_runtime.h>

#include "cuda/kernels/compute_capability.h"
#include "cuda/kernels/overlap.cuh"

namespace jaxsparse {

template <typename... Params, typename... Args>
cudaError_t LaunchEarly(void (*kernel)(Params...), dim3 grid, int threads, cudaStream_t stream,
                        const Args&... args) {
  int capability = 0;
  const cudaError_t error = ComputeCapability(&capability);
  if (error != cudaSuccess) return error;
  if (capability >= 90) return LaunchOverlapped(kernel, grid, threads, 0, stream, args...);
  kernel<<<grid, threads, 0, stream>>>(args...);
  return cudaGetLastError();
}

}  // namespace jaxsparse
