// Workspace kernels. Weights: transposed and rounded in 32 x 32 tiles through shared memory, both
// sides coalesced.
//
// Floor: 8 bytes a weight, in L2 as a rule (3x3x256x256: 4.7 MB, about 2 us).
#include "cuda/kernels/masked_conv_workspace.h"

#include <cstdint>

#include "cuda/kernels/masked_conv_launch.h"

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

__global__ void ClearFlagsKernel(uint32_t* flags, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) flags[i] = 0;
}

}  // namespace

cudaError_t LaunchTransposeWeights(const float* in, float* out, int k, int o, cudaStream_t stream) {
  const dim3 grid((k + kTile - 1) / kTile, (o + kTile - 1) / kTile);
  TransposeWeightsKernel<<<grid, dim3(kTile, kLines), 0, stream>>>(in, out, k, o);
  return cudaGetLastError();
}

cudaError_t LaunchClearFlags(uint32_t* flags, int count, cudaStream_t stream) {
  ClearFlagsKernel<<<1, 512, 0, stream>>>(flags, count);
  return cudaGetLastError();
}

cudaError_t PrepareConvWorkspace() {
  const cudaError_t status = PrepareKernel(&TransposeWeightsKernel, 0);
  return status == cudaSuccess ? PrepareKernel(&ClearFlagsKernel, 0) : status;
}

}  // namespace jaxsparse
