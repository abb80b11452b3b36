// ConvDevices: what a launcher of a tensor-core engine finds out about each device, once.
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>

#include "cuda/core/device.h"

namespace jaxsparse {

// `HopperOnly`: of the engine that needs wgmma.
template <class Found, bool HopperOnly = true>
class ConvDevices {
 public:
  // Runs `prepare(int device, Found*)` for the current device unless that was done; outside any
  // capture the first time. Where it must be a Hopper and is none, nothing is prepared and the
  // status is success: ConvProblemReason refuses it.
  template <class Prepare>
  cudaError_t Ready(Prepare prepare) {
    int device = 0;
    const cudaError_t status = cudaGetDevice(&device);
    if (status != cudaSuccess) return status;
    if (device >= kMaxDevices) return cudaErrorInvalidDevice;
    if (HopperOnly && !OnHopper()) return cudaSuccess;
    Entry& entry = entries_[device];
    std::call_once(entry.once, [&] { entry.status = prepare(device, &entry.found); });
    return entry.status;
  }

  // What was found about the current device, which is ready.
  const Found& Current() const {
    int device = 0;
    return entries_[cudaGetDevice(&device) == cudaSuccess ? device : 0].found;
  }

 private:
  struct Entry {
    std::once_flag once;
    cudaError_t status = cudaErrorNotReady;
    Found found = {};
  };
  Entry entries_[kMaxDevices];
};

}  // namespace jaxsparse
