// One row of variants/pruned_windows.toml in one element type: its kernel, prepared and launched.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/kernels/pruned_conv/kernel.cuh"
#include "cuda/kernels/pruned_conv/variant.h"

namespace jaxsparse {

template <typename T, int Outputs, int Positions>
cudaError_t PrunedWindowsVariant<T, Outputs, Positions>::Prepare() {
  int device = 0, most = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (error != cudaSuccess) return error;
  // A device with less refuses a launch that needs more.
  return cudaFuncSetAttribute(PrunedWindows<T, Outputs, Positions>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                              std::min(most, kWindowsMostSharedBytes));
}

template <typename T, int Outputs, int Positions>
cudaError_t PrunedWindowsVariant<T, Outputs, Positions>::Launch(const PrunedArgs& args,
                                                                const WindowsLayout& layout,
                                                                unsigned blocks,
                                                                int64_t shared_bytes,
                                                                cudaStream_t stream) {
  const int threads = 32 * layout.position_warps * layout.output_warps;
  PrunedWindows<T, Outputs, Positions>
      <<<blocks, threads, static_cast<size_t>(shared_bytes), stream>>>(args, layout);
  return cudaGetLastError();
}

}  // namespace jaxsparse
