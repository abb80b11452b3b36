// What the CUDA handlers share: what they bind, dtypes, errors, one-time preparation.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <string>

#include "contracts/call.h"
#include "cuda/core/device.h"
#include "cuda/core/dtype.h"
#include "xla/ffi/api/ffi.h"

namespace jaxsparse {

namespace ffi = ::xla::ffi;

// The stream, the attributes as a contract's struct, and every operand and result: what the
// contract's decoder checks.
template <class Attributes>
auto BindCall() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::PlatformStream<cudaStream_t>>()
      .Attrs<Attributes>()
      .RemainingArgs()
      .RemainingRets();
}

// The same without attributes.
inline auto BindPlainCall() {
  return ffi::Ffi::Bind().Ctx<ffi::PlatformStream<cudaStream_t>>().RemainingArgs().RemainingRets();
}

inline auto BindInit() { return ffi::Ffi::Bind<ffi::ExecutionStage::kInitialize>(); }

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

// A workspace that is smaller than a launch needs; `unit` is what it is counted in.
inline ffi::Error TooSmall(const char* op, int64_t found, int64_t wanted, const char* unit) {
  contract::Checker check(op);
  check.Room(found, wanted, unit);
  return check.error();
}

// Of a type that the contract has checked: f32, bf16 or f16.
inline DType ToDType(ffi::DataType type) {
  if (type == ffi::DataType::F32) return DType::kF32;
  return type == ffi::DataType::BF16 ? DType::kBF16 : DType::kF16;
}

inline bool IsAligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

// Whether an array may be read 16 bytes at a time; one that is absent may.
inline bool IsAligned(const contract::Array& array) {
  return !array.given() || IsAligned(array.data);
}

// `base` is in the result already wherever XLA kept the alias; where it gave the two buffers of
// their own (a constant of a loop), it is copied. An absent base is nowhere.
inline cudaError_t PlaceBase(const contract::Array& base, const contract::Array& out,
                             cudaStream_t stream) {
  if (!base.given() || base.data == out.data) return cudaSuccess;
  return cudaMemcpyAsync(out.data, base.data, static_cast<size_t>(out.bytes()),
                         cudaMemcpyDeviceToDevice, stream);
}

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
