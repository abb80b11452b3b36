// What the three kernels of the Hopper kernel gradient share: parameters, the length of K, and
// where a sum belongs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/tile/conv/params.h"

namespace jaxsparse {

struct DepthPixel;

inline constexpr int kDkernelStepPixels = 64;  // of K

struct DkernelParams {
  ConvParams conv;
  const DepthPixel* pixels;  // a row of K each, whole steps
  const void* gy;
  int gy_units;                // of 16 bytes in a row
  float* dkernel;              // [rows, out_c]
  float* parts;                // [workers + tiles, tile_m * tile_n]
  int rows;                    // taps * channels
  int tile_m, tile_n, groups;  // a tile, and the warpgroups that multiply it
  int m_tiles, n_tiles, workers;
};

// Steps of K: the pixels of the listed tiles, on the device.
__device__ __forceinline__ int DkernelSlots(const RowList& list) {
  return min(max(__ldg(list.count), 0), list.capacity) * list.tile_h * list.tile_w;
}
__device__ __forceinline__ int DkernelSteps(const RowList& list) {
  return (DkernelSlots(list) + kDkernelStepPixels - 1) / kDkernelStepPixels;
}

// Four sums of thread `thread` of those that multiply a tile, fragment `j` (block of 64 rows, then
// 8 columns) of its own: two of one row, and the two below them by eight rows.
__device__ __forceinline__ void StoreDkernelSums(const DkernelParams& p, int tile, int j,
                                                 int thread, float4 sums) {
  const int columns = p.tile_n / 8, lane = thread % 32;
  const int block = thread / 128 * (p.tile_m / 64 / p.groups) + j / columns;
  const int row = tile / p.n_tiles * p.tile_m + block * 64 + thread % 128 / 32 * 16 + lane / 4;
  const int column = tile % p.n_tiles * p.tile_n + j % columns * 8 + lane % 4 * 2;
  if (column >= p.conv.out_c) return;
  float* to = p.dkernel + static_cast<int64_t>(row) * p.conv.out_c + column;
  if (row < p.rows) *reinterpret_cast<float2*>(to) = make_float2(sums.x, sums.y);
  if (row + 8 < p.rows) {
    *reinterpret_cast<float2*>(to + 8 * static_cast<int64_t>(p.conv.out_c)) =
        make_float2(sums.z, sums.w);
  }
}

}  // namespace jaxsparse
