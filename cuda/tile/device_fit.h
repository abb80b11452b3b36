// Whether a device can run packed operands, which may have been made for another one.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxsparse {

// Whether the current device can launch blocks of `shared_bytes` in clusters of `parts` blocks.
inline bool FitsDevice(int64_t shared_bytes, int64_t parts) {
  int device = 0, most = 0, clusters = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) ==
             cudaSuccess &&
         cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, device) == cudaSuccess &&
         shared_bytes <= most && (parts == 1 || clusters != 0);
}

}  // namespace jaxsparse
