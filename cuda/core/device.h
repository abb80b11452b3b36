// What a device is.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace jaxsparse {

// Devices of one process that are told apart; what is known of one is asked once.
inline constexpr int kMaxDevices = 64;

// Multiprocessors of an H100 SXM and an H200, for sizes that are fixed when a kernel is compiled. A
// launch asks MultiProcessors.
inline constexpr int kHopperMultiProcessors = 132;

// The compute capability of the current device, 10 * major + minor.
inline cudaError_t ComputeCapability(int* capability) {
  static std::array<std::atomic<int>, kMaxDevices> known{};  // 0: not asked yet
  int device = 0, major = 0, minor = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  const bool kept = device < kMaxDevices;
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

#ifndef JAXSPARSE_HOPPER_KERNELS
#error "the build says whether it holds kernels for sm_90a (cmake/hopper.cmake)"
#endif

// Whether the current device is of compute capability 9.0, one of those that are told apart, and
// this build holds Hopper's own kernels.
inline bool OnHopper() {
  int device = 0, capability = 0;
  return JAXSPARSE_HOPPER_KERNELS != 0 && cudaGetDevice(&device) == cudaSuccess &&
         device < kMaxDevices && ComputeCapability(&capability) == cudaSuccess && capability == 90;
}

// Multiprocessors of the current device; 1 when it cannot be asked, and then the launch reports
// why.
inline int64_t MultiProcessors() {
  int device = 0, value = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 1;
  if (cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
    return 1;
  return value;
}

}  // namespace jaxsparse
