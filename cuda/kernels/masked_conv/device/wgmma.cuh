// Choice on the device: every CTA reads the same few numbers, picks the same candidate, and runs
// its body.
//
// Floor:    that of the candidate that runs. Choosing adds one load that all CTAs share (the number
//           that the index kernel wrote), or, where an index serves many ops, the count and the
//           cost row of each lane's candidate and five rounds of shuffles; and a copy of the list's
//           description to shared memory, after which all threads synchronise.
// Tile:     the candidate's. All bodies have the same threads; the launch asks for the shared
//           memory of the largest, which costs nothing at one CTA a multiprocessor. Beside rows
//           that share weights or split K all run in clusters: in pairs as fast as without; of
//           fours an H200 holds 116 to 120 CTAs of 132.
// Pipeline: pick -> the body of wgmma/kernel.cuh or wgmma/box.cuh. The branch is uniform
//           over the grid. Four kernels, of which a call launches one: of all rows for every call;
//           and for plain ones (IsPlainCall) of rows of at most 64 and 128 columns, and of all. The
//           first stores every kind of call by the same code (Stores::kAny): code for each kind in
//           each of 21 bodies takes the compiler half as long again.
// Measured (H200): through JAX .4 to .8 us more than the same variant launched directly. A body of
//           40 to 60 KB in one piece is found in the instruction caches as that of a kernel of its
//           own is; with the branches that plain calls never take it is not, and calls of 64 to 128
//           columns take 4 to 11 % longer. No loop over K touches local memory: keep it so.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/core/launch.h"
#include "cuda/kernels/masked_conv/device/params.h"
#include "cuda/kernels/masked_conv/device/pick.cuh"
#include "cuda/kernels/masked_conv/problem.h"
#include "cuda/kernels/masked_conv/wgmma/box.cuh"
#include "cuda/kernels/masked_conv/wgmma/kernel.cuh"

namespace jaxsparse {

// A row of the variant table as one body among others: where it is one CTA wide, shares weights
// between two, or splits K over two or four.
template <typename T, int TileM, int TileN, int Stages, int Cluster, int SplitK, int StreamK,
          int Box>
struct DeviceBody {
  static constexpr int kParts = Cluster * SplitK;
  static constexpr bool kHeld = Cluster <= 2 && kParts <= kMostParts;
  static_assert(!kHeld || kParts != 3, "pairs and fours");
  template <bool Plain>
  using Gather =
      OneOfMany<MaskedConvConfig<T, TileM, TileN, Stages, Cluster, SplitK, StreamK, Plain>>;
  template <bool Plain>
  using Boxes = OneOfMany<BoxConvConfig<T, TileM, TileN, Stages, StreamK, Plain>>;

  static constexpr int SharedBytes() {
    if constexpr (!kHeld) {
      return 0;
    } else if constexpr (Box != 0) {
      return Boxes<false>::kSharedBytes;
    } else {
      return Gather<false>::kSharedBytes;
    }
  }

  // In a kernel of rows of at most `Columns` columns.
  template <int Columns, bool Plain>
  __device__ static __forceinline__ void Run(const DeviceParams& p, const CUtensorMap& weights,
                                             const CUtensorMap& image, const RowList& rows,
                                             uint8_t* raw) {
    if constexpr (!kHeld || TileN > Columns) {
      // not a body of this kernel
    } else if constexpr (Box != 0) {
      using C = Boxes<Plain>;
      static_assert(C::kThreads == kConvThreads, "bodies of one kernel share its threads");
      static_assert(C::kSharedBytes == SharedBytes());
      RunBoxConv<C>(p.conv, rows, p.plan, weights, image, raw);
    } else {
      using C = Gather<Plain>;
      static_assert(C::kThreads == kConvThreads, "bodies of one kernel share its threads");
      static_assert(C::kSharedBytes == SharedBytes());
      RunMaskedConv<C>(p.conv, rows, weights, raw);
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

template <typename T, int Columns, bool Plain>
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
#define JAXSPARSE_VARIANT(number, name, ...)                                                \
  case number:                                                                              \
    DeviceBody<T, __VA_ARGS__>::template Run<Columns, Plain>(p, weights, image, rows, raw); \
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
int MaskedConvDevice<T>::Columns(int variant) {
  switch (variant) {
#define JAXSPARSE_VARIANT(number, name, tile_m, tile_n, ...) \
  case number:                                               \
    return tile_n;
#include "masked_conv_table.inc"
#undef JAXSPARSE_VARIANT
  }
  return kMostColumns;
}

template <typename T>
int MaskedConvDevice<T>::Parts(int variant) {
  switch (variant) {
#define JAXSPARSE_VARIANT(number, name, tile_m, tile_n, stages, cluster, split_k, ...) \
  case number:                                                                         \
    return cluster * split_k;
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

// The kernel for calls whose candidates have at most `columns` columns.
template <typename T>
auto DeviceKernel(int columns, bool plain) {
  return !plain           ? MaskedConvDeviceKernel<T, kMostColumns, false>
         : columns <= 64  ? MaskedConvDeviceKernel<T, 64, true>
         : columns <= 128 ? MaskedConvDeviceKernel<T, 128, true>
                          : MaskedConvDeviceKernel<T, kMostColumns, true>;
}

template <typename T>
cudaError_t MaskedConvDevice<T>::Prepare(int (&ctas)[kMostParts + 1]) {
  cudaError_t status = cudaSuccess;
  for (int& held : ctas) held = kMaxConvCtas;
  for (const auto kernel : {DeviceKernel<T>(kMostColumns, false), DeviceKernel<T>(64, true),
                            DeviceKernel<T>(128, true), DeviceKernel<T>(kMostColumns, true)}) {
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
                                        const CUtensorMap& image, int ctas, int columns, bool plain,
                                        int parts, cudaStream_t stream) {
  cudaLaunchAttribute attribute;
  const cudaLaunchConfig_t config =
      ClusterLaunch(ctas, parts, kConvThreads, DeviceSharedBytes<T>(), stream, &attribute);
  return cudaLaunchKernelEx(&config, DeviceKernel<T>(columns, plain), p, weights, image);
}

}  // namespace jaxsparse
