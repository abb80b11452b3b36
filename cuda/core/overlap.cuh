// Programmatic launch: a kernel may start before the one in front of it is done, and waits for its
// results itself.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "cuda/core/device.h"

namespace jaxsparse {

// In the kernel in front: the next one may start. Its results are still waited for.
__device__ __forceinline__ void LetNextStart() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Returns when the kernel in front is done, and with it those that it waited for.
__device__ __forceinline__ void WaitForPrevious() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

inline cudaLaunchAttribute OverlapAttribute() {
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  return overlap;
}

// Launches a kernel that calls WaitForPrevious in every thread. Compute capability 9.0 and later.
template <class... Params, class... Args>
cudaError_t LaunchOverlapped(void (*kernel)(Params...), dim3 grid, int threads, int shared_bytes,
                             cudaStream_t stream, Args&&... args) {
  cudaLaunchAttribute overlap = OverlapAttribute();
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
}

// The same where the device can, else behind the kernel in front.
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
