// Host helpers that launchers share.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxsparse {

inline int64_t CeilDiv(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

// Loads a kernel onto the current device and raises its limit of dynamic shared memory.
template <class Kernel>
cudaError_t PrepareKernel(Kernel kernel, int shared_bytes) {
  const void* entry = reinterpret_cast<const void*>(kernel);
  cudaFuncAttributes attributes;
  const cudaError_t status = cudaFuncGetAttributes(&attributes, entry);
  if (status != cudaSuccess || shared_bytes == 0) return status;
  return cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
}

// A launch of `ctas` CTAs in clusters of `cluster`, whose size `attribute` keeps.
inline cudaLaunchConfig_t ClusterLaunch(int ctas, int cluster, int threads, int shared_bytes,
                                        cudaStream_t stream, cudaLaunchAttribute* attribute) {
  attribute->id = cudaLaunchAttributeClusterDimension;
  attribute->val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(ctas);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attribute;
  config.numAttrs = 1;
  return config;
}

}  // namespace jaxsparse
