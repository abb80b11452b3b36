// What a device is, asked once.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>

namespace jaxsparse {

// The compute capability of the current device, 10 * major + minor.
inline cudaError_t ComputeCapability(int* capability) {
  static std::array<std::atomic<int>, 64> known{};  // 0: not asked yet
  int device = 0, major = 0, minor = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  const bool kept = device < static_cast<int>(known.size());
  *capability = kept ? known[device].load(std::memory_order_relaxed) : 0;
  if (*capability != 0) return cudaSuccess;
  status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (status != cudaSuccess) return status;
  status = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (status != cudaSuccess) return status;
  *capability = 10 * major + minor;
  if (kept) known[device].store(*capability, std::memory_order_relaxed);
  return cudaSuccess;
}

}  // namespace jaxsparse
