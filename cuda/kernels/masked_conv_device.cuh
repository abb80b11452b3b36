// Choice on the device: every CTA reads the same few numbers, picks the same candidate, and runs
// its body.
//
// Floor:    that of the candidate that runs. Choosing adds one load that all CTAs share (the number
//           that the index kernel wrote), or, where an index serves many ops, the count and the
//           cost row of each lane's candidate and five rounds of shuffles.
// Tile:     the candidate's. All bodies have the same threads and no cluster; the launch asks for
//           the shared memory of the largest, which costs nothing at one CTA a multiprocessor.
// Pipeline: pick -> the body of masked_conv_wgmma.cuh or masked_conv_box.cuh. The branch is uniform
//           over the grid; bodies that do not run cost code size only.
// Measured (H200): 0.3-2.6 us more than the same variant launched directly; 5 and more for 256
//           outputs at densities of .3 and .5.
#pragma once

#include <cuda_runtime_api.h>

#include <cmath>

#include "cuda/index/cost.cuh"
#include "cuda/kernels/masked_conv_box.cuh"
#include "cuda/kernels/masked_conv_device_params.h"
#include "cuda/kernels/masked_conv_wgmma.cuh"

namespace jaxsparse {

// The candidate to run, the same in every thread of the grid.
class Pick {
 public:
  __device__ explicit Pick(const DeviceParams& p) {
    PrefetchCounts(p);
    const int chosen = p.choice != nullptr ? *p.choice : Cheapest(p);
    const int candidate = chosen < 0 || chosen >= p.candidates ? 0 : chosen;
    variant_ = __shfl_sync(~0u, p.variant[candidate], 0);
    source_ = __shfl_sync(~0u, p.source[candidate], 0);
  }

  __device__ int variant() const { return variant_; }
  __device__ int source() const { return source_; }

 private:
  // The body's first load, on its way while the choice is.
  __device__ static void PrefetchCounts(const DeviceParams& p) {
    if (threadIdx.x >= p.candidates) return;
    const int32_t* count = p.rows[p.source[threadIdx.x]].count;
    if (count != nullptr) asm volatile("prefetch.global.L1 [%0];" ::"l"(count));
  }

  // The first candidate of the least cost; one whose list overflowed costs infinity.
  __device__ static int Cheapest(const DeviceParams& p) {
    const int lane = threadIdx.x % 32;
    float cost = INFINITY;
    if (lane < p.candidates) {
      const RowList& rows = p.rows[p.source[lane]];
      const int count = rows.count == nullptr ? 0 : max(*rows.count, 0);
      const float total = VariantCost(p.costs + kCostColumns * lane, count);
      if (count <= rows.capacity && total < INFINITY) cost = total;
    }
    int best = lane;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(~0u, cost, step);
      const int from = __shfl_xor_sync(~0u, best, step);
      if (other < cost || (other == cost && from < best)) cost = other, best = from;
    }
    return best;
  }

  int variant_, source_;
};

// A row of the variant table as one body among others, where it is one CTA wide.
template <typename T, int TileM, int TileN, int Stages, int Cluster, int SplitK, int StreamK,
          int Box>
struct DeviceBody {
  static constexpr bool kHeld = Cluster * SplitK == 1;
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

  __device__ static __forceinline__ void Run(const DeviceParams& p, const CUtensorMap& weights,
                                             const CUtensorMap& image, int source, uint8_t* raw) {
    if constexpr (kHeld && Box != 0) {
      static_assert(Boxes::kThreads == kConvThreads, "bodies of one kernel share its threads");
      RunBoxConv<Boxes>(p.conv, p.rows[source], p.plan, weights, image, raw);
    } else if constexpr (kHeld) {
      static_assert(Gather::kThreads == kConvThreads, "bodies of one kernel share its threads");
      RunMaskedConv<Gather>(p.conv, p.rows[source], weights, raw);
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

template <typename T>
__global__ void __launch_bounds__(kConvThreads, 1)
    MaskedConvDeviceKernel(const __grid_constant__ DeviceParams p,
                           const __grid_constant__ CUtensorMap weights,
                           const __grid_constant__ CUtensorMap image) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t raw[];
  const Pick pick(p);
  switch (pick.variant()) {
#define JAXSPARSE_VARIANT(number, name, ...)                                \
  case number:                                                              \
    DeviceBody<T, __VA_ARGS__>::Run(p, weights, image, pick.source(), raw); \
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
cudaError_t MaskedConvDevice<T>::Prepare(int* ctas) {
  const auto kernel = MaskedConvDeviceKernel<T>;
  const cudaError_t status = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, DeviceSharedBytes<T>());
  int device = 0, processors = 0, each = 0;
  if (status != cudaSuccess || cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess ||
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, kConvThreads,
                                                    DeviceSharedBytes<T>()) != cudaSuccess) {
    return status != cudaSuccess ? status : cudaGetLastError();
  }
  *ctas = processors * each;
  return cudaSuccess;
}

template <typename T>
cudaError_t MaskedConvDevice<T>::Launch(const DeviceParams& p, const CUtensorMap& weights,
                                        const CUtensorMap& image, int ctas, cudaStream_t stream) {
  MaskedConvDeviceKernel<T>
      <<<ctas, kConvThreads, DeviceSharedBytes<T>(), stream>>>(p, weights, image);
  return cudaGetLastError();
}

}  // namespace jaxsparse
