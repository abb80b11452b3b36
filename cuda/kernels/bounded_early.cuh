// Launches of kernels that call WaitForPrevious in every thread: before the kernel in front is done
// where the device can, else behind it.
#pragma once

#include <cuda_runtime.h>

#include "cuda/kernels/overlap.cuh"

namespace jaxsparse {

template <typename... Params, typename... Args>
cudaError_t LaunchEarly(void (*kernel)(Params...), dim3 grid, int threads, cudaStream_t stream,
                        const Args&... args) {
  int device = 0, major = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  }
  if (error != cudaSuccess) return error;
  if (major >= 9) return LaunchOverlapped(kernel, grid, threads, 0, stream, args...);
  kernel<<<grid, threads, 0, stream>>>(args...);
  return cudaGetLastError();
}

}  // namespace jaxsparse
