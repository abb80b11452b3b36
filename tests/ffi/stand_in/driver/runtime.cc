// The functions of the CUDA runtime that handlers and kernels call: each checks what NVIDIA's
// checks, and does nothing else. The stand-in is linked with them instead of libcudart_static.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "launch.h"
#include "log.h"
#include "memory.h"
#include "occupancy.h"
#include "tensor_map.h"

using stand_in::Device;
using stand_in::Fault;
using stand_in::Image;
using stand_in::kDeviceCount;
using stand_in::kDevices;
using stand_in::Kernel;
using stand_in::Launch;

namespace {

thread_local cudaError_t last = cudaSuccess;

cudaError_t Ended(cudaError_t status) {
  if (status != cudaSuccess) last = status;
  return status;
}

// For functions where any refusal is a fault of the program.
template <class... Values>
cudaError_t Refused(cudaError_t status, const char* format, Values... values) {
  Fault(format, values...);
  return Ended(status);
}

// Whether a copy or fill may use these bytes; `what` names the function in the fault.
bool IsBuffer(const char* what, const void* data, size_t bytes, bool written) {
  const auto* range = stand_in::Holding(reinterpret_cast<uintptr_t>(data), bytes);
  if (range == nullptr) {
    Fault("%s: %zu bytes at %p are in no buffer", what, bytes, data);
  } else if (written && !range->writable) {
    Fault("%s: writes an operand", what);
  }
  return range != nullptr && (range->writable || !written);
}

Launch ToLaunch(const cudaLaunchConfig_t& config) {
  Launch launch = {config.gridDim, config.blockDim, static_cast<int64_t>(config.dynamicSmemBytes),
                   config.stream};
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == cudaLaunchAttributeClusterDimension) {
      const auto [x, y, z] = attribute.val.clusterDim;
      launch.cluster = dim3(x, y, z);
    } else if (attribute.id == cudaLaunchAttributeCooperative) {
      launch.cooperative = attribute.val.cooperative != 0;
    } else if (attribute.id != cudaLaunchAttributeProgrammaticStreamSerialization) {
      Fault("the stand-in does not know launch attribute %d", static_cast<int>(attribute.id));
    }
  }
  return launch;
}

const Image* ImageOf(const void* entry) {
  const Kernel* const kernel = stand_in::Find(entry);
  if (kernel == nullptr) {
    Fault("%p is not a kernel", entry);
    return nullptr;
  }
  const Image* const image = kernel->On(Device());
  if (image == nullptr) {
    Fault("%s: no code for %s", kernel->name.c_str(), kDevices[Device()].name);
  }
  return image;
}

cudaError_t SetAttribute(const void* entry, cudaFuncAttribute attribute, int value, int device) {
  const Image* const image = ImageOf(entry);
  if (image == nullptr) return Ended(cudaErrorNoKernelImageForDevice);
  Kernel* const kernel = stand_in::Find(entry);
  auto& limits = kernel->limits[device];
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value < 0 || value + image->static_bytes > kDevices[device].optin_bytes) {
      return Refused(cudaErrorInvalidValue, "%s: %d and %d bytes of shared memory",
                     kernel->name.c_str(), value, image->static_bytes);
    }
    limits.dynamic_bytes = value;
  } else if (attribute == cudaFuncAttributeNonPortableClusterSizeAllowed) {
    limits.wide_clusters = value != 0;
  } else if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) {
    if (value < -1 || value > 100) return Refused(cudaErrorInvalidValue, "carveout %d", value);
  } else {
    Fault("the stand-in does not know attribute %d of a function", static_cast<int>(attribute));
  }
  return cudaSuccess;
}

thread_local Launch pushed;

}  // namespace

extern "C" {

// What nvcc's host code calls.

void** __cudaRegisterFatBinary(void* wrapper) {
  const void* data;  // the wrapper: magic, version, data, a file's name
  memcpy(&data, static_cast<char*>(wrapper) + 8, sizeof(data));
  stand_in::ReadFatBinary(data);
  return static_cast<void**>(wrapper);
}

void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  Kernel* const kernel = &stand_in::AllKernels()[name];
  kernel->name = name;
  stand_in::Bind(host, kernel);
  stand_in::Bind(kernel, kernel);  // as a handle
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t bytes, cudaStream_t stream) {
  pushed = {grid, block, static_cast<int64_t>(bytes), stream};
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* bytes, void* stream) {
  *grid = pushed.grid;
  *block = pushed.block;
  *bytes = static_cast<size_t>(pushed.dynamic_bytes);
  *static_cast<cudaStream_t*>(stream) = pushed.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* entry) {
  *kernel = reinterpret_cast<cudaKernel_t>(stand_in::Find(entry));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t bytes, cudaStream_t stream) {
  const Launch launch = {grid, block, static_cast<int64_t>(bytes), stream};
  return Ended(stand_in::CheckLaunch(reinterpret_cast<Kernel*>(kernel), launch, arguments));
}

// The runtime's own functions.

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* entry,
                                void** arguments) {
  Kernel* const kernel = stand_in::Find(entry);
  if (kernel == nullptr) return Refused(cudaErrorInvalidDeviceFunction, "%p: no kernel", entry);
  return Ended(stand_in::CheckLaunch(kernel, ToLaunch(*config), arguments));
}

cudaError_t cudaGetLastError() { return std::exchange(last, cudaSuccess); }

const char* cudaGetErrorString(cudaError_t status) {
  static thread_local char text[64];
  snprintf(text, sizeof(text), "CUDA error %d of the stand-in", static_cast<int>(status));
  return text;
}

cudaError_t cudaGetDevice(int* device) {
  *device = Device();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= kDeviceCount) {
    return Refused(cudaErrorInvalidDevice, "device %d", device);
  }
  stand_in::SetDevice(device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= kDeviceCount) {
    return Refused(cudaErrorInvalidDevice, "device %d", device);
  }
  const auto& facts = kDevices[device];
  if (attribute == cudaDevAttrComputeCapabilityMajor) {
    *value = facts.capability / 10;
  } else if (attribute == cudaDevAttrComputeCapabilityMinor) {
    *value = facts.capability % 10;
  } else if (attribute == cudaDevAttrMultiProcessorCount) {
    *value = facts.multiprocessors;
  } else if (attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin) {
    *value = facts.optin_bytes;
  } else if (attribute == cudaDevAttrMaxSharedMemoryPerMultiprocessor) {
    *value = facts.shared_bytes;
  } else if (attribute == cudaDevAttrClusterLaunch) {
    *value = facts.capability >= 90;
  } else {
    return Refused(cudaErrorInvalidValue, "the stand-in does not know device attribute %d",
                   static_cast<int>(attribute));
  }
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* entry) {
  const Image* const image = ImageOf(entry);
  if (image == nullptr) return Ended(cudaErrorNoKernelImageForDevice);
  *attributes = {};
  attributes->sharedSizeBytes = static_cast<size_t>(image->static_bytes);
  attributes->maxThreadsPerBlock = image->most_threads;
  attributes->numRegs = image->registers;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* entry, cudaFuncAttribute attribute, int value) {
  return SetAttribute(entry, attribute, value, Device());
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute attribute,
                                            int value, int device) {
  return SetAttribute(kernel, attribute, value, device);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* entry,
                                                                   int threads, size_t bytes,
                                                                   unsigned) {
  const Image* const image = ImageOf(entry);
  if (image == nullptr) return Ended(cudaErrorNoKernelImageForDevice);
  *blocks = static_cast<int>(
      stand_in::BlocksAtOnce(*image, kDevices[Device()], threads, static_cast<int64_t>(bytes)));
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* entry,
                                           const cudaLaunchConfig_t* config) {
  const Image* const image = ImageOf(entry);
  if (image == nullptr) return Ended(cudaErrorNoKernelImageForDevice);
  *clusters = static_cast<int>(stand_in::ClustersAtOnce(*image, ToLaunch(*config)));
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* data, int, size_t bytes, cudaStream_t stream) {
  if (stream != stand_in::GivenStream()) return Refused(cudaErrorInvalidValue, "another stream");
  const bool right = IsBuffer("cudaMemsetAsync", data, bytes, true);
  return Ended(right ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemcpyAsync(void* out, const void* in, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (stream != stand_in::GivenStream() || kind != cudaMemcpyDeviceToDevice) {
    return Refused(cudaErrorInvalidValue, "a copy of kind %d, or on another stream", kind);
  }
  const bool right = IsBuffer("cudaMemcpyAsync, to", out, bytes, true) &&
                     IsBuffer("cudaMemcpyAsync, from", in, bytes, false);
  return Ended(right ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** entry, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  const bool known = strcmp(name, "cuTensorMapEncodeTiled") == 0;
  if (!known) Fault("the stand-in does not have the driver's %s", name);
  *entry = known ? reinterpret_cast<void*>(&stand_in::EncodeTiled) : nullptr;
  *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

}  // extern "C"
