// Kernels that are loaded as PTX while the program runs: the generated code of pruned weights.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "kernels.h"
#include "log.h"

namespace {

using stand_in::Device;
using stand_in::Fault;
using stand_in::Image;
using stand_in::kDevices;
using stand_in::Kernel;

std::mutex lock;  // modules are loaded by several threads

// The number after a directive, or `otherwise`.
int NumberAfter(const char* text, const char* directive, int otherwise) {
  const char* const found = strstr(text, directive);
  int value = otherwise;
  return found != nullptr && sscanf(found + strlen(directive), "%d", &value) == 1 ? value
                                                                                  : otherwise;
}

// Its parameters, before the body: ".param .u64", ".param .u32".
std::vector<int> ParametersOf(const char* text) {
  std::vector<int> sizes;
  const char* const entry = strstr(text, ".entry");
  const char* const end = entry == nullptr ? nullptr : strchr(entry, '{');
  for (const char* at = entry;
       at != nullptr && (at = strstr(at, ".param .")) != nullptr && at < end; ++at) {
    sizes.push_back(NumberAfter(at, ".param .u", 0) / 8);
  }
  return sizes;
}

}  // namespace

extern "C" {

cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption*, void**,
                                unsigned, cudaLibraryOption*, void**, unsigned) {
  const char* const text = static_cast<const char*>(code);
  const char* const entry = strstr(text, ".entry ");
  const int target = NumberAfter(text, ".target sm_", 0);
  const int capability = kDevices[Device()].capability;
  char name[64];
  if (entry == nullptr || sscanf(entry, ".entry %63[a-zA-Z0-9_]", name) != 1 || target == 0) {
    Fault("cudaLibraryLoadData: not PTX");
    return cudaErrorInvalidPtx;
  }
  if (target > capability) {
    Fault("cudaLibraryLoadData: PTX for sm_%d on sm_%d", target, capability);
    return cudaErrorInvalidPtx;
  }
  auto* const kernel = new Kernel{name, {}, false, {}};
  Image image;
  image.most_threads = NumberAfter(text, ".maxntid ", NumberAfter(text, ".reqntid ", 1024));
  // As many registers as the assembler may use for so many threads.
  image.registers =
      std::min(255, stand_in::kRegisters / ((image.most_threads + 127) / 128 * 128) / 8 * 8);
  image.parameters = ParametersOf(text);
  for (const auto& device : kDevices) {
    if (device.capability >= target) kernel->images[device.capability] = image;
  }
  const std::lock_guard<std::mutex> hold(lock);
  stand_in::Bind(kernel, kernel);
  *library = reinterpret_cast<cudaLibrary_t>(kernel);
  return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  const std::lock_guard<std::mutex> hold(lock);
  const Kernel* const found = stand_in::Find(library);
  if (found == nullptr || found->name != name) {
    Fault("cudaLibraryGetKernel: no kernel %s", name);
    return cudaErrorSymbolNotFound;
  }
  *kernel = reinterpret_cast<cudaKernel_t>(library);
  return cudaSuccess;
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
  const std::lock_guard<std::mutex> hold(lock);
  Kernel* const kernel = stand_in::Find(library);
  if (kernel == nullptr) {
    Fault("cudaLibraryUnload: %p is not loaded", static_cast<void*>(library));
    return cudaErrorInvalidResourceHandle;
  }
  stand_in::Bind(library, nullptr);
  delete kernel;
  return cudaSuccess;
}

}  // extern "C"
