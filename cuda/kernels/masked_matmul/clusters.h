// The launch of a kernel whose tiles are 512 rows by 64 columns, in clusters that stay. It may
// start before the index in front of it is done.
#pragma once

#include <algorithm>
#include <atomic>
#include <limits>

#include "cuda/core/launch.h"
#include "cuda/core/overlap.cuh"
#include "cuda/kernels/masked_matmul/strips.h"

namespace jaxsparse {

// What cudaLaunchKernelEx takes. It holds a pointer into itself and stays where it is.
struct PieceLaunch {
  PieceLaunch(int threads, int shared_bytes) {
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {kPieceCluster, 1, 1};
    attributes[1] = OverlapAttribute();
    config.gridDim = dim3(kPieceCluster);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.attrs = attributes;
    config.numAttrs = 1;
  }
  PieceLaunch(const PieceLaunch&) = delete;
  PieceLaunch& operator=(const PieceLaunch&) = delete;

  // Sets the grid: as many CTAs as there are tiles, or as the current device holds at once in whole
  // clusters.
  template <auto Kernel>
  cudaError_t Fit(const StripParams& p) {
    constexpr int kDevices = 64;
    static std::atomic<int> known[kDevices] = {};
    int device = 0, clusters = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status != cudaSuccess) return status;
    if (device < kDevices) clusters = known[device].load();
    if (clusters == 0) {
      status = cudaOccupancyMaxActiveClusters(&clusters, Kernel, &config);
      if (status != cudaSuccess) return status;
      if (clusters < 1) return cudaErrorInvalidConfiguration;
      if (device < kDevices) known[device].store(clusters);
    }
    const int64_t items =
        int64_t{p.lists} * p.index.piece_tiles * CeilDiv(p.column_blocks, kPieceCluster);
    if (items > std::numeric_limits<int32_t>::max()) return cudaErrorInvalidConfiguration;
    const auto grid = static_cast<unsigned>(std::min<int64_t>(items, clusters)) * kPieceCluster;
    config.gridDim = dim3(grid);
    config.numAttrs = 2;
    return cudaSuccess;
  }

  cudaLaunchConfig_t config = {};
  cudaLaunchAttribute attributes[2] = {};
};

}  // namespace jaxsparse
