// Masked product on CUDA cores in float32: any size, any block, any dtype.
//
// Floor: 2 operations a kept entry of `a` and column at 51 TFLOP/s (measured, H200). Tile: 64 x 64
// of the result, 16 of K a step, 4 x 4 sums a thread. A masked entry is never loaded; a step in
// which either operand has nothing is not multiplied, a tile without a wanted output is only
// zeroed. One stage, so that latency shows: the kernel for what the tensor cores do not take.
#include <algorithm>

#include "cuda/core/device.h"
#include "cuda/core/element.cuh"
#include "cuda/core/launch.h"
#include "cuda/kernels/masked_matmul/bits.cuh"

namespace jaxsparse {
namespace {

constexpr int kTile = 64, kDepth = 16, kThreads = 256, kPitch = kTile + 4;

struct TileAt {
  int64_t list, row, column;
};

// Whether some output of the tile is wanted; every thread gets the answer.
__device__ bool Wanted(const MaskedMatmulArgs& p, const TileAt& tile) {
  if (p.out_bits.words == nullptr) return true;
  bool any = false;
  for (int i = threadIdx.x; i < kTile * kTile && !any; i += kThreads) {
    const int64_t row = tile.row + i / kTile, column = tile.column + i % kTile;
    any = row < p.rows && column < p.columns && HasEntry(p.out_bits, tile.list, row, column);
  }
  return __syncthreads_or(any);
}

// Copies a kRows x kColumns piece of a matrix into shared memory, masked entries as zeros; says
// whether it has any other.
template <typename T, int kRows, int kColumns, bool kTransposed>
__device__ bool LoadPiece(const T* matrix, int64_t rows, int64_t columns, const BlockBits& bits,
                          int64_t list, int64_t row0, int64_t column0, float (*piece)[kPitch]) {
  bool any = false;
  for (int i = threadIdx.x; i < kRows * kColumns; i += kThreads) {
    const int64_t row = row0 + i / kColumns, column = column0 + i % kColumns;
    const bool counts = row < rows && column < columns && HasEntry(bits, list, row, column);
    const float v = counts ? simt::ToFloat(matrix[row * columns + column]) : 0.0f;
    piece[kTransposed ? i % kColumns : i / kColumns][kTransposed ? i / kColumns : i % kColumns] = v;
    any |= counts;
  }
  return any;
}

__device__ void MultiplyPieces(const float (*a)[kPitch], const float (*b)[kPitch],
                               float (&sums)[4][4]) {
  const int m0 = threadIdx.x / 16 * 4, n0 = threadIdx.x % 16 * 4;
#pragma unroll
  for (int k = 0; k < kDepth; ++k) {
    const float4 x = *reinterpret_cast<const float4*>(&a[k][m0]);
    const float4 y = *reinterpret_cast<const float4*>(&b[k][n0]);
    const float rows[4] = {x.x, x.y, x.z, x.w}, columns[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[i][j] = fmaf(rows[i], columns[j], sums[i][j]);
    }
  }
}

template <typename T>
__device__ void StoreSums(const MaskedMatmulArgs& p, const TileAt& tile,
                          const float (&sums)[4][4]) {
  const int64_t m0 = tile.row + threadIdx.x / 16 * 4, n0 = tile.column + threadIdx.x % 16 * 4;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      if (m0 + i >= p.rows || n0 + j >= p.columns) continue;
      const bool wanted = HasEntry(p.out_bits, tile.list, m0 + i, n0 + j);
      const float v[1] = {wanted ? sums[i][j] : 0.0f};
      const int64_t at = (tile.list * p.rows + m0 + i) * p.columns + n0 + j;
      simt::StoreResult<1, T>(p.out, p.out_type == DType::kF32, at, v);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) MaskedMatmulDirect(const MaskedMatmulArgs p) {
  __shared__ __align__(16) float a[kDepth][kPitch];
  __shared__ __align__(16) float b[kDepth][kPitch];
  const int64_t row_tiles = (p.rows + kTile - 1) / kTile;
  const int64_t column_tiles = (p.columns + kTile - 1) / kTile;
  for (int64_t t = blockIdx.x; t < p.lists * row_tiles * column_tiles; t += gridDim.x) {
    const int64_t line = t / column_tiles;
    const TileAt tile = {line / row_tiles, line % row_tiles * kTile,
                         (t - line * column_tiles) * kTile};
    const T* left =
        static_cast<const T*>(p.a) + (p.a_lists == 1 ? 0 : tile.list) * p.rows * p.depth;
    const T* right =
        static_cast<const T*>(p.b) + (p.b_lists == 1 ? 0 : tile.list) * p.depth * p.columns;
    float sums[4][4] = {};
    if (Wanted(p, tile)) {
      for (int64_t k = 0; k < p.depth; k += kDepth) {
        const bool any_a = __syncthreads_or(LoadPiece<T, kTile, kDepth, true>(
            left, p.rows, p.depth, p.a_bits, tile.list, tile.row, k, a));
        if (!any_a) continue;
        const bool any_b = __syncthreads_or(LoadPiece<T, kDepth, kTile, false>(
            right, p.depth, p.columns, p.b_bits, tile.list, k, tile.column, b));
        if (any_b) MultiplyPieces(a, b, sums);
        __syncthreads();
      }
    }
    StoreSums<T>(p, tile, sums);
  }
}

template <typename T>
cudaError_t Launch(const MaskedMatmulArgs& args, cudaStream_t stream) {
  const int64_t tiles = args.lists * CeilDiv(args.rows, kTile) * CeilDiv(args.columns, kTile);
  if (tiles == 0) return cudaSuccess;
  const unsigned grid = static_cast<unsigned>(std::min<int64_t>(tiles, MultiProcessors() * 8));
  MaskedMatmulDirect<T><<<grid, kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchMaskedMatmulDirect(const MaskedMatmulArgs& args, cudaStream_t stream) {
  if (args.in_type == DType::kF32) return Launch<float>(args, stream);
  if (args.in_type == DType::kBF16) return Launch<__nv_bfloat16>(args, stream);
  return Launch<__half>(args, stream);
}

cudaError_t PrepareMaskedMatmulDirect() {
  cudaError_t status = PrepareKernel(&MaskedMatmulDirect<float>, 0);
  if (status == cudaSuccess) status = PrepareKernel(&MaskedMatmulDirect<__nv_bfloat16>, 0);
  if (status == cudaSuccess) status = PrepareKernel(&MaskedMatmulDirect<__half>, 0);
  return status;
}

}  // namespace jaxsparse
