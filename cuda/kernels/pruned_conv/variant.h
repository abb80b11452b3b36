// One row of variants/pruned_windows.toml in one element type, as the launcher calls it. The
// generated translation units instantiate it from variant.cuh.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/kernels/pruned_conv/launch.h"

namespace jaxsparse {

inline constexpr int kWindowsMostSharedBytes = 227 << 10;

template <typename T, int Outputs, int Positions>
struct PrunedWindowsVariant {
  // Raises the shared-memory limit and loads the kernel.
  static cudaError_t Prepare();

  static cudaError_t Launch(const PrunedArgs& args, const WindowsLayout& layout, unsigned blocks,
                            int64_t shared_bytes, cudaStream_t stream);
};

}  // namespace jaxsparse
