// Choice on the device: every CTA reads the same few numbers, picks the same candidate, and runs
// its body.
//
// Floor:    that of the candidate that runs. Choosing adds one load that all CTAs share (the number
//           that the index kernel wrote), or, where an index serves many ops, the count and the
//           cost row of each lane's candidate and five rounds of shuffles; and a copy of the list's
//           description to shared memory, behind which all threads meet.
// Tile:     the candidate's. All bodies have the same threads; the launch asks for the shared
//           memory of the largest, which costs nothing at one CTA a multiprocessor. Beside rows
//           that split K all run in clusters: in pairs as fast as without; of fours an H200 holds
//           116 to 120 CTAs of 132.
// Pipeline: pick -> the body of masked_conv_wgmma.cuh or masked_conv_box.cuh. The branch is uniform
//           over the grid. Two kernels, of which a call launches one: of the rows of 256 columns,
//           or of all rows.
// Measured (H200): 0.5-4.2 us more than the same variant launched directly: what is executed for
//           the first time is fetched from L2 by every launch, where the code of one variant stays
//           in the cache that the multiprocessors of a GPC share. In the kernel of all rows those
//           that stream K take 0.5 to 1.2 % longer than in that of 256 columns, m128n256 as long.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/kernels/masked_conv_box.cuh"
#include "cuda/kernels/masked_conv_device_params.h"
#include "cuda/kernels/masked_conv_launch.h"
#include "cuda/kernels/masked_conv_pick.cuh"
#include "cuda/kernels/masked_conv_problem.h"
#include "cuda/kernels/masked_conv_wgmma.cuh"

namespace jaxsparse {

// A row of the variant table as one body among others, where it is one CTA wide or splits K over
// two or four.
template <typename T, int TileM, int TileN, int Stages, int Cluster, int SplitK, int StreamK,
          int Box>
struct DeviceBody {
  static constexpr bool kHeld = Cluster == 1 && SplitK <= kMostParts;
  static constexpr bool kWide = kHeld && TileN == 256;
  static_assert(!kHeld || SplitK == 1 || !kWide, "rows that split K have fewer columns");
  static_assert(!kHeld || SplitK != 3, "pairs and fours");
  using Gather = MaskedConvConfig<T, TileM, TileN, Stages, Cluster, SplitK, StreamK>;
  using Boxes = BoxConvConfig<T, TileM, TileN, Stages, StreamK>;

  static constexpr int SharedBytes() {
    if constexpr (!kHeld) {
      return 0;
    } else if constexpr (Box != 0) {
      return Boxes::kSharedBytes;
    } else {
      return Gather::kSharedBytes;
    }
  }

  // Wide: in the kernel of rows of 256 columns; else in the one of all.
  template <bool Wide>
  __device__ static __forceinline__ void Run(const DeviceParams& p, const CUtensorMap& weights,
                                             const CUtensorMap& image, const RowList& rows,
                                             uint8_t* raw) {
    if constexpr (!kHeld || (Wide && !kWide)) {
      // not a body of this kernel
    } else if constexpr (Box != 0) {
      static_assert(Boxes::kThreads == kConvThreads, "bodies of one kernel share its threads");
      RunBoxConv<Boxes>(p.conv, rows, p.plan, weights, image, raw);
    } else {
      static_assert(Gather::kThreads == kConvThreads, "bodies of one kernel share its threads");
      RunMaskedConv<Gather>(p.conv, rows, weights, raw);
    }
  }
};

// The shared memory of the largest body.
template <typename T>
constexpr int DeviceSharedBytes() {
  int most = 0;
#define JAXSPARSE_VARIANT(number, name, ...)              \
  most = DeviceBody<T, __VA_ARGS__>::SharedBytes() > most \
             ? DeviceBody<T, __VA_ARGS__>::SharedBytes()  \
             : most;
#include "masked_conv_table.inc"
#undef JAXSPARSE_VARIANT
  return most;
}

static_assert(sizeof(RowList) % sizeof(uint32_t) == 0 &&
              sizeof(RowList) <= kConvThreads * sizeof(uint32_t));  // HoldRows

template <typename T, bool Wide>
__global__ void __launch_bounds__(kConvThreads, 1)
    MaskedConvDeviceKernel(const __grid_constant__ DeviceParams p,
                           const __grid_constant__ CUtensorMap weights,
                           const __grid_constant__ CUtensorMap image) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  static_assert(DeviceSharedBytes<T>() + sizeof(RowList) <= 227 * 1024);
  extern __shared__ uint8_t raw[];
  const Pick pick(p);
  const RowList& rows = HoldRows(p, pick.source());
  switch (pick.variant()) {
#define JAXSPARSE_VARIANT(number, name, ...)                                      \
  case number:                                                                    \
    DeviceBody<T, __VA_ARGS__>::template Run<Wide>(p, weights, image, rows, raw); \
    break;
#include "masked_conv_table.inc"
#undef JAXSPARSE_VARIANT
  }
#endif
}

template <typename T>
bool MaskedConvDevice<T>::Holds(int variant) {
  switch (variant) {
#define JAXSPARSE_VARIANT(number, name, ...) \
  case number:                               \
    return DeviceBody<T, __VA_ARGS__>::kHeld;
#include "masked_conv_table.inc"
#undef JAXSPARSE_VARIANT
  }
  return false;
}

template <typename T>
bool MaskedConvDevice<T>::Wide(int variant) {
  switch (variant) {
#define JAXSPARSE_VARIANT(number, name, ...) \
  case number:                               \
    return DeviceBody<T, __VA_ARGS__>::kWide;
#include "masked_conv_table.inc"
#undef JAXSPARSE_VARIANT
  }
  return false;
}

template <typename T>
int MaskedConvDevice<T>::Parts(int variant) {
  switch (variant) {
#define JAXSPARSE_VARIANT(number, name, tile_m, tile_n, stages, cluster, split_k, ...) \
  case number:                                                                         \
    return split_k;
#include "masked_conv_table.inc"
#undef JAXSPARSE_VARIANT
  }
  return 1;
}

template <typename T>
bool MaskedConvDevice<T>::LoadsBoxes(int variant) {
  switch (variant) {
#define JAXSPARSE_VARIANT(number, name, tile_m, tile_n, stages, cluster, split_k, stream_k, box) \
  case number:                                                                                   \
    return box != 0;
#include "masked_conv_table.inc"
#undef JAXSPARSE_VARIANT
  }
  return false;
}

template <typename T>
cudaError_t MaskedConvDevice<T>::Prepare(int (&ctas)[kMostParts + 1]) {
  cudaError_t status = cudaSuccess;
  for (int& held : ctas) held = kMaxConvCtas;
  for (const auto kernel : {MaskedConvDeviceKernel<T, false>, MaskedConvDeviceKernel<T, true>}) {
    if (status == cudaSuccess) {
      status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    DeviceSharedBytes<T>());
    }
    for (int parts = 1; parts <= kMostParts && status == cudaSuccess; parts *= 2) {
      cudaLaunchAttribute attribute;
      const cudaLaunchConfig_t config =
          ClusterLaunch(parts, parts, kConvThreads, DeviceSharedBytes<T>(), nullptr, &attribute);
      int clusters = 0;
      status = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
      ctas[parts] = std::min(ctas[parts], parts * clusters);
    }
  }
  return status;
}

template <typename T>
cudaError_t MaskedConvDevice<T>::Launch(const DeviceParams& p, const CUtensorMap& weights,
                                        const CUtensorMap& image, int ctas, bool wide, int parts,
                                        cudaStream_t stream) {
  const auto kernel = wide ? MaskedConvDeviceKernel<T, true> : MaskedConvDeviceKernel<T, false>;
  cudaLaunchAttribute attribute;
  const cudaLaunchConfig_t config =
      ClusterLaunch(ctas, parts, kConvThreads, DeviceSharedBytes<T>(), stream, &attribute);
  return cudaLaunchKernelEx(&config, kernel, p, weights, image);
}

}  // namespace jaxsparse
