// What the launchers of frozen weights ask of the device.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

namespace jaxsparse {

// Lets a kernel take `bytes` of shared memory, or what a block may take here where that is less.
template <class Kernel>
cudaError_t AllowShared(Kernel* kernel, int64_t bytes) {
  int device = 0, most = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (error != cudaSuccess) return error;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(std::min<int64_t>(most, bytes)));
}

// Leaves as much memory to shared memory as there is, so that several blocks share a
// multiprocessor: left alone, the driver may leave enough for one.
template <class Kernel>
cudaError_t PreferShared(Kernel* kernel) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                              cudaSharedmemCarveoutMaxShared);
}

// `parts` blocks of a cluster, or 1 on a device that has no clusters: where the packed arrays are
// the same.
inline int32_t PartsHere(int64_t parts) {
  int device = 0, clusters = 0;
  const bool known =
      cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, device) == cudaSuccess;
  return known && clusters != 0 ? static_cast<int32_t>(parts) : 1;
}

}  // namespace jaxsparse
