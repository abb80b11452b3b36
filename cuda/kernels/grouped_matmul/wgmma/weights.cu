// Weights of all groups, transposed and rounded in 32 x 32 tiles through shared memory.
//
// Floor: 8 bytes a weight at 4.3 TB/s.
#include "cuda/kernels/grouped_matmul/wgmma/weights.h"

#include <algorithm>

namespace jaxsparse {
namespace {

constexpr int kTile = 32, kLines = 8;

__device__ float RoundToTF32(float v) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
  return __uint_as_float(bits);
}

__global__ void TransposeStackKernel(const float* __restrict__ in, float* __restrict__ out,
                                     const int32_t* __restrict__ starts, int64_t tiles, int k_tiles,
                                     int n_tiles, int64_t k_size, int64_t n_size) {
  __shared__ float tile[kTile][kTile + 1];
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const int64_t group = t / (k_tiles * n_tiles);
    const int inside = static_cast<int>(t - group * k_tiles * n_tiles);
    if (starts[group] == starts[group + 1]) continue;
    const int64_t k0 = int64_t{inside / n_tiles} * kTile, n0 = int64_t{inside % n_tiles} * kTile;
    const int64_t base = group * k_size * n_size;
    __syncthreads();
    for (int i = threadIdx.y; i < kTile; i += kLines) {
      const int64_t k = k0 + i, n = n0 + threadIdx.x;
      if (k < k_size && n < n_size) tile[i][threadIdx.x] = in[base + k * n_size + n];
    }
    __syncthreads();
    for (int i = threadIdx.y; i < kTile; i += kLines) {
      const int64_t n = n0 + i, k = k0 + threadIdx.x;
      if (k < k_size && n < n_size) {
        out[base + n * k_size + k] = RoundToTF32(tile[threadIdx.x][i]);
      }
    }
  }
}

}  // namespace

cudaError_t LaunchTransposeStack(const float* in, float* out, const int32_t* starts, int64_t groups,
                                 int64_t k, int64_t n, cudaStream_t stream) {
  const int64_t k_tiles = (k + kTile - 1) / kTile, n_tiles = (n + kTile - 1) / kTile;
  const int64_t tiles = groups * k_tiles * n_tiles;
  const auto grid = static_cast<unsigned>(std::min<int64_t>(tiles, 1 << 16));
  TransposeStackKernel<<<grid, dim3(kTile, kLines), 0, stream>>>(
      in, out, starts, tiles, static_cast<int>(k_tiles), static_cast<int>(n_tiles), k, n);
  return cudaGetLastError();
}

}  // namespace jaxsparse
