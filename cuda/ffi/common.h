// What the CUDA handlers share: dtypes, errors, one-time preparation.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <string>

#include "cuda/core/device.h"
#include "cuda/core/dtype.h"
#include "xla/ffi/api/ffi.h"

namespace jaxsparse {

namespace ffi = ::xla::ffi;

// What the runtime says of an error. The thread forgets it here: a last error that is kept would be
// reported again by the next handler that launches.
inline std::string TakeError(cudaError_t status) {
  cudaGetLastError();
  return cudaGetErrorString(status);
}

inline ffi::Error CudaStatus(const char* op, cudaError_t status) {
  if (status == cudaSuccess) return ffi::Error::Success();
  return ffi::Error::Internal(std::string(op) + ": " + TakeError(status));
}

inline ffi::Error Invalid(const char* op, const std::string& reason) {
  return ffi::Error::InvalidArgument(std::string(op) + ": " + reason);
}

inline std::optional<DType> ToDType(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F32:
      return DType::kF32;
    case ffi::DataType::BF16:
      return DType::kBF16;
    case ffi::DataType::F16:
      return DType::kF16;
    default:
      return std::nullopt;
  }
}

// Whether `buffer` has this shape.
inline bool HasShape(const ffi::AnyBuffer& buffer, std::initializer_list<int64_t> shape) {
  const auto dims = buffer.dimensions();
  if (dims.size() != shape.size()) return false;
  size_t i = 0;
  for (const int64_t size : shape) {
    if (dims[i++] != size) return false;
  }
  return true;
}

inline bool IsAligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

// Runs a preparation once for each device, and again only after it failed.
class OncePerDevice {
 public:
  template <class Prepare>
  cudaError_t Run(Prepare prepare) {
    int device = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status != cudaSuccess) return status;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (device < static_cast<int>(done_.size()) && done_[device]) return cudaSuccess;
    status = prepare(device);
    if (status == cudaSuccess && device < static_cast<int>(done_.size())) done_[device] = true;
    return status;
  }

 private:
  std::mutex mutex_;
  std::array<bool, kMaxDevices> done_{};
};

}  // namespace jaxsparse
