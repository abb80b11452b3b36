// Workspace kernels. Weights: transposed and rounded in 32 x 32 tiles through shared memory, both
// sides coalesced.
//
// Floor: 8 bytes a weight, in L2 as a rule (3x3x256x256: 4.7 MB, about 2 us).
#include "cuda/kernels/masked_conv/workspace.h"

#include <atomic>
#include <chrono>
#include <cstdint>

#include "cuda/core/launch.h"

namespace jaxsparse {
namespace {

constexpr int kTile = 32, kLines = 8;

__device__ float RoundToTF32(float v) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
  return __uint_as_float(bits);
}

__global__ void TransposeWeightsKernel(const float* __restrict__ in, float* __restrict__ out,
                                       int k_size, int o_size) {
  __shared__ float tile[kTile][kTile + 1];
  const int k0 = blockIdx.x * kTile, o0 = blockIdx.y * kTile;
  for (int i = threadIdx.y; i < kTile; i += kLines) {
    const int k = k0 + i, o = o0 + threadIdx.x;
    if (k < k_size && o < o_size) tile[i][threadIdx.x] = in[static_cast<int64_t>(k) * o_size + o];
  }
  __syncthreads();
  for (int i = threadIdx.y; i < kTile; i += kLines) {
    const int o = o0 + i, k = k0 + threadIdx.x;
    if (k < k_size && o < o_size) {
      out[static_cast<int64_t>(o) * k_size + k] = RoundToTF32(tile[threadIdx.x][i]);
    }
  }
}

// One to one, and looks drawn (the finalizer of splitmix64).
uint64_t Mix(uint64_t v) {
  v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9;
  v = (v ^ v >> 27) * 0x94d049bb133111eb;
  return v ^ v >> 31;
}

}  // namespace

cudaError_t LaunchTransposeWeights(const float* in, float* out, int k, int o, cudaStream_t stream) {
  const dim3 grid((k + kTile - 1) / kTile, (o + kTile - 1) / kTile);
  TransposeWeightsKernel<<<grid, dim3(kTile, kLines), 0, stream>>>(in, out, k, o);
  return cudaGetLastError();
}

uint64_t NextMark() {
  static std::atomic<uint64_t> turn =
      Mix(static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()));
  uint64_t mark = 0;  // what a flag is that was taken back
  while (mark == 0) mark = Mix(turn.fetch_add(1, std::memory_order_relaxed));
  return mark;
}

cudaError_t PrepareConvWorkspace() { return PrepareKernel(&TransposeWeightsKernel, 0); }

}  // namespace jaxsparse
