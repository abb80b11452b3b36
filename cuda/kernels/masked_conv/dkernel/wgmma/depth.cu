// Before and behind the products of the Hopper kernel gradient.
//
// Pixels:  a thread a pixel slot; an id, a word of the mask and 16 bytes written each. What every
//          tile would work out again is worked out once.
// Sum:     a thread four sums of a tile, read in fragment order, 16 bytes a thread, mostly from L2,
//          and added in the order of the workers. Where tiles have many parts eight threads take a
//          run of them each and their sums are added in order: the same result every time.
#include "cuda/kernels/masked_conv/dkernel/wgmma/depth.h"

#include <algorithm>

#include "cuda/core/device.h"
#include "cuda/core/launch.h"
#include "cuda/tile/conv/depth_schedule.cuh"
#include "cuda/tile/load/depth_pixels.cuh"

namespace jaxsparse {
namespace {

constexpr int kPixelThreads = 256;
constexpr int kSumThreads = 256;
constexpr int kPartsAtOnce = 8;
constexpr int kManyParts = 16;  // of a tile, from where on they are added in runs

__global__ void __launch_bounds__(kPixelThreads)
    DkernelPixels(const __grid_constant__ DkernelParams p, DepthPixel* pixels) {
  const PixelRows<false> rows(p.conv, p.conv.list);
  const int64_t end = int64_t{DkernelSteps(p.conv.list)} * kDkernelStepPixels;
  const int64_t stride = int64_t{gridDim.x} * kPixelThreads;
  for (int64_t at = int64_t{blockIdx.x} * kPixelThreads + threadIdx.x; at < end; at += stride) {
    const int row = static_cast<int>(at);
    DepthPixel entry = {0, 0, 0, -1};
    if (row < rows.rows()) {
      const OutputPixel pixel = rows.Find(row, rows.Place(row, rows.List(row)));
      const TapWindow window = FindTapWindow(p.conv, pixel);
      entry.base = window.base;
      entry.taps_low = static_cast<uint32_t>(window.taps);
      entry.taps_high = static_cast<uint32_t>(window.taps >> 32);
      if (pixel.active) entry.pixel = rows.Flat(pixel);
    }
    *reinterpret_cast<int4*>(pixels + at) = *reinterpret_cast<const int4*>(&entry);
  }
}

// The sum of parts `begin` to `end`, `stride` apart, at one place.
__device__ __forceinline__ float4 AddParts(const float4* parts, int64_t stride, int begin,
                                           int end) {
  float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int w = begin; w < end; w += kPartsAtOnce) {
    float4 v[kPartsAtOnce];
#pragma unroll
    for (int i = 0; i < kPartsAtOnce; ++i) {
      v[i] = w + i < end ? __ldcg(parts + (w + i) * stride) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
#pragma unroll
    for (int i = 0; i < kPartsAtOnce; ++i) {
      sum.x += v[i].x, sum.y += v[i].y, sum.z += v[i].z, sum.w += v[i].w;
    }
  }
  return sum;
}

// A block adds the parts of kSumThreads / Ranges places of one tile, each in `Ranges` runs of its
// workers.
template <int Ranges>
__global__ void __launch_bounds__(kSumThreads) DkernelSum(const __grid_constant__ DkernelParams p) {
  constexpr int kPlaces = kSumThreads / Ranges;
  __shared__ float4 sums[Ranges][kPlaces];
  const int lane = threadIdx.x % kPlaces, range = threadIdx.x / kPlaces;
  const int places = p.tile_m * p.tile_n / 4, place = blockIdx.x * kPlaces + lane;
  const int steps = DkernelSteps(p.conv.list);
  const DepthSchedule schedule(p.m_tiles * p.n_tiles, steps, p.workers);
  for (int tile = blockIdx.y; tile < p.m_tiles * p.n_tiles; tile += gridDim.y) {
    const int first = steps > 0 ? schedule.First(tile) : 0;
    const int many = steps > 0 ? schedule.Last(tile) + 1 - first : 0;
    if (many == 1) continue;  // finished by its worker
    const float4* parts = reinterpret_cast<const float4*>(p.parts) +
                          int64_t{DepthSchedule::Part(first, tile)} * places + place;
    float4 sum = AddParts(parts, places, many * range / Ranges, many * (range + 1) / Ranges);
    if constexpr (Ranges > 1) {
      sums[range][lane] = sum;
      __syncthreads();
#pragma unroll
      for (int r = 1; r < Ranges; ++r) {
        const float4 v = sums[r][lane];
        if (range == 0) sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
      }
      __syncthreads();
    }
    if (range == 0) {
      StoreDkernelSums(p, tile, place / (128 * p.groups), place % (128 * p.groups), sum);
    }
  }
}

template <int Ranges>
cudaError_t LaunchSum(const DkernelParams& p, cudaStream_t stream) {
  constexpr int kMostTiles = 65535;
  const dim3 grid(p.tile_m * p.tile_n / 4 / (kSumThreads / Ranges),
                  std::min(p.m_tiles * p.n_tiles, kMostTiles));
  DkernelSum<Ranges><<<grid, kSumThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchDkernelPixels(const DkernelParams& p, DepthPixel* pixels, cudaStream_t stream) {
  const int64_t slots = int64_t{p.conv.list.capacity} * p.conv.list.tile_h * p.conv.list.tile_w;
  const int64_t blocks = std::min<int64_t>(CeilDiv(slots, kPixelThreads), MultiProcessors() * 8);
  DkernelPixels<<<static_cast<unsigned>(std::max<int64_t>(blocks, 1)), kPixelThreads, 0, stream>>>(
      p, pixels);
  return cudaGetLastError();
}

cudaError_t LaunchDkernelSum(const DkernelParams& p, cudaStream_t stream) {
  const bool many = p.workers >= int64_t{kManyParts} * p.m_tiles * p.n_tiles;
  return many ? LaunchSum<8>(p, stream) : LaunchSum<1>(p, stream);
}

cudaError_t PrepareDkernelDepth() {
  cudaError_t status = PrepareKernel(&DkernelPixels, 0);
  if (status == cudaSuccess) status = PrepareKernel(&DkernelSum<1>, 0);
  return status == cudaSuccess ? PrepareKernel(&DkernelSum<8>, 0) : status;
}

}  // namespace jaxsparse
