// One row of variants/masked_conv.toml in one element type: its kernel, prepared and launched.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/core/launch.h"
#include "cuda/kernels/masked_conv/wgmma/row_config.cuh"
#include "cuda/kernels/masked_conv/wgmma/variant.h"

namespace jaxsparse {

template <typename C>
cudaLaunchConfig_t DescribeLaunch(int clusters, cudaStream_t stream,
                                  cudaLaunchAttribute* attribute) {
  constexpr int kCtas = C::kCluster * C::kSplitK;
  return ClusterLaunch(clusters * kCtas, kCtas, C::kThreads, C::kSharedBytes, stream, attribute);
}

template <typename C, typename Kernel>
cudaError_t PrepareVariant(Kernel kernel, int* clusters) {
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, C::kSharedBytes);
  if (status != cudaSuccess) return status;
  cudaLaunchAttribute attribute;
  const cudaLaunchConfig_t config = DescribeLaunch<C>(1, nullptr, &attribute);
  return cudaOccupancyMaxActiveClusters(clusters, kernel, &config);
}

template <typename T, int TileM, int TileN, int Stages, int Cluster, int SplitK, int StreamK,
          int Box>
cudaError_t MaskedConvVariant<T, TileM, TileN, Stages, Cluster, SplitK, StreamK, Box>::Prepare(
    int* clusters) {
  using C = RowConfig<T, TileM, TileN, Stages, Cluster, SplitK, StreamK, Box>;
  static_assert(Box == 0 || Cluster * SplitK == 1, "rows that load boxes are one CTA wide");
  if constexpr (Box) {
    return PrepareVariant<C>(MaskedConvBoxKernel<C>, clusters);
  } else {
    return PrepareVariant<C>(MaskedConvWgmmaKernel<C>, clusters);
  }
}

template <typename T, int TileM, int TileN, int Stages, int Cluster, int SplitK, int StreamK,
          int Box>
cudaError_t MaskedConvVariant<T, TileM, TileN, Stages, Cluster, SplitK, StreamK, Box>::Launch(
    const ConvParams& p, const ConvMaps& maps, int clusters, cudaStream_t stream) {
  using C = RowConfig<T, TileM, TileN, Stages, Cluster, SplitK, StreamK, Box>;
  cudaLaunchAttribute attribute;
  const cudaLaunchConfig_t config = DescribeLaunch<C>(clusters, stream, &attribute);
  if constexpr (Box) {
    return cudaLaunchKernelEx(&config, MaskedConvBoxKernel<C>, p, maps.plan, maps.weights,
                              maps.image);
  } else {
    return cudaLaunchKernelEx(&config, MaskedConvWgmmaKernel<C>, p, maps.weights);
  }
}

}  // namespace jaxsparse
