// Grouped products on CUDA cores, for what the tensor cores do not take: odd sizes, float32 at
// precision "highest", devices before Hopper.
//
// Floor: 2 * rows * K * N operations at 51 TFLOP/s (measured, H200).
// Tile:  64 x 64 sums, 4 x 4 a thread, K in steps of 16 through shared memory as float32. No
//        pipeline: several blocks a multiprocessor hide the loads.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/kernels/grouped_matmul/params.cuh"

namespace jaxsparse::direct {

inline constexpr int kTile = 64, kStep = 16, kThreads = 256, kPad = 4;

__device__ __forceinline__ float ToFloat(float v) { return v; }
__device__ __forceinline__ float ToFloat(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ __forceinline__ float ToFloat(__half v) { return __half2float(v); }
__device__ __forceinline__ void StoreAs(float* at, float v) { *at = v; }
__device__ __forceinline__ void StoreAs(__nv_bfloat16* at, float v) { *at = __float2bfloat16(v); }
__device__ __forceinline__ void StoreAs(__half* at, float v) { *at = __float2half(v); }

// One step of both operands, K the outer axis.
struct StepTiles {
  float a[kStep][kTile + kPad], b[kStep][kTile + kPad];
};

// This thread's 4 x 4 sums of a tile.
struct TileSums {
  float v[4][4] = {};

  __device__ static int Row() { return threadIdx.x / 16 * 4; }
  __device__ static int Column() { return threadIdx.x % 16 * 4; }

  __device__ void Multiply(const StepTiles& s) {
#pragma unroll
    for (int k = 0; k < kStep; ++k) {
      const float4 a = *reinterpret_cast<const float4*>(&s.a[k][Row()]);
      const float4 b = *reinterpret_cast<const float4*>(&s.b[k][Column()]);
      const float rows[4] = {a.x, a.y, a.z, a.w}, columns[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) v[i][j] = fmaf(rows[i], columns[j], v[i][j]);
      }
    }
  }
};

struct ForwardParams {
  SortedRows lhs;  // its units are elements
  GroupedPlan plan;
  CombineSlots combine;
  const float* row_weights;
  const void* rhs;
  void* out;
  int64_t depth, outputs;
  int64_t step_k, step_n;  // strides of rhs
  int n_tiles;
};

template <typename T>
__device__ __forceinline__ void LoadForward(const ForwardParams& p, const RowTile& tile,
                                            const int* rows, int64_t column, int64_t k0,
                                            StepTiles& s) {
  const T* lhs = static_cast<const T*>(p.lhs.data);
  const T* rhs = static_cast<const T*>(p.rhs) + tile.group * p.depth * p.outputs;
#pragma unroll
  for (int i = 0; i < kTile * kStep / kThreads; ++i) {
    const int at = threadIdx.x + i * kThreads;
    const int r = at / kStep, k = at % kStep;
    const bool reads = rows[r] >= 0 && k0 + k < p.depth;
    s.a[k][r] = reads ? ToFloat(lhs[rows[r] * p.depth + k0 + k]) : 0.0f;
    const bool along_n = p.step_n == 1;  // neighbours read neighbours
    const int bk = along_n ? at / kTile : k, bn = along_n ? at % kTile : r;
    const bool there = k0 + bk < p.depth && column + bn < p.outputs;
    s.b[bk][bn] = there ? ToFloat(rhs[(k0 + bk) * p.step_k + (column + bn) * p.step_n]) : 0.0f;
  }
}

template <typename U>
__device__ __forceinline__ void StoreForward(const ForwardParams& p, const RowTile& tile,
                                             const int* rows, int64_t column,
                                             const TileSums& sums) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int r = TileSums::Row() + i, row = tile.first + r;
    if (r >= tile.rows || (p.combine.scatter != nullptr && rows[r] < 0)) continue;
    const float factor = p.row_weights == nullptr || rows[r] < 0 ? 1.0f : p.row_weights[row];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t c = column + TileSums::Column() + j;
      if (c >= p.outputs) continue;
      StoreAs(static_cast<U*>(p.out) + row * p.outputs + c,
              rows[r] < 0 ? 0.0f : sums.v[i][j] * factor);
    }
  }
}

template <typename T, typename U>
__global__ void __launch_bounds__(kThreads) GroupedDirectKernel(const ForwardParams p) {
  __shared__ __align__(16) StepTiles s;
  __shared__ int rows[kTile];  // of lhs, -1: does not count
  const int64_t tiles = int64_t{p.plan.header[0]} * p.n_tiles;
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const RowTile tile = p.plan.tiles[t / p.n_tiles];
    const int64_t column = t % p.n_tiles * kTile;
    __syncthreads();
    if (threadIdx.x < kTile) {
      const int r = threadIdx.x;
      rows[r] = tile.group >= 0 && r < tile.rows ? p.lhs.Find(tile.first + r) : -1;
      if (p.combine.scatter != nullptr && column == 0 && rows[r] >= 0) {
        AnnounceRow(p.combine, tile.first + r, p.combine.scatter[tile.first + r]);
      }
    }
    __syncthreads();
    TileSums sums;
    for (int64_t k0 = 0; tile.group >= 0 && k0 < p.depth; k0 += kStep) {
      LoadForward<T>(p, tile, rows, column, k0, s);
      __syncthreads();
      sums.Multiply(s);
      __syncthreads();
    }
    StoreForward<U>(p, tile, rows, column, sums);
  }
}

struct DrhsParams {
  SortedRows lhs, gy;  // each the other's partner
  const int32_t* starts;
  const float* row_weights;
  void* drhs;
  int64_t groups, depth, outputs;
  int m_tiles, n_tiles;
};

template <typename T>
__device__ __forceinline__ void LoadDrhs(const DrhsParams& p, int64_t m, int64_t n, int first,
                                         int end, StepTiles& s) {
#pragma unroll
  for (int i = 0; i < kTile * kStep / kThreads; ++i) {
    const int at = threadIdx.x + i * kThreads;
    const int r = at / kTile, c = at % kTile, row = first + r;
    const int from = row < end ? p.lhs.Find(row) : -1, to = row < end ? p.gy.Find(row) : -1;
    const float weight = from < 0 || p.row_weights == nullptr ? 1.0f : p.row_weights[row];
    s.a[r][c] = from >= 0 && m + c < p.depth
                    ? weight * ToFloat(static_cast<const T*>(p.lhs.data)[from * p.depth + m + c])
                    : 0.0f;
    s.b[r][c] = to >= 0 && n + c < p.outputs
                    ? ToFloat(static_cast<const T*>(p.gy.data)[to * p.outputs + n + c])
                    : 0.0f;
  }
}

template <typename T, typename U>
__global__ void __launch_bounds__(kThreads) GroupedDrhsDirectKernel(const DrhsParams p) {
  __shared__ __align__(16) StepTiles s;
  const int64_t per_group = int64_t{p.m_tiles} * p.n_tiles;
  for (int64_t t = blockIdx.x; t < p.groups * per_group; t += gridDim.x) {
    const int64_t group = t / per_group, inside = t - group * per_group;
    const int64_t m = inside / p.n_tiles * kTile, n = inside % p.n_tiles * kTile;
    const int begin = p.starts[group], end = p.starts[group + 1];
    TileSums sums;
    for (int first = begin; first < end; first += kStep) {
      LoadDrhs<T>(p, m, n, first, end, s);
      __syncthreads();
      sums.Multiply(s);
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t k = m + TileSums::Row() + i;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int64_t c = n + TileSums::Column() + j;
        if (k >= p.depth || c >= p.outputs) continue;
        StoreAs(static_cast<U*>(p.drhs) + (group * p.depth + k) * p.outputs + c, sums.v[i][j]);
      }
    }
  }
}

}  // namespace jaxsparse::direct
