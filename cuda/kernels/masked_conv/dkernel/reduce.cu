// Ordered sum of partial results: no atomics, so that a gradient is the same in every run.
//
// Floor: 4 * splits * elements bytes read once, mostly from L2, which the partials have just been
// written to. Tile: 32 elements x 8 ranges of splits a block; a thread adds its range in order,
// then the eight sums are added in order.
#include "cuda/kernels/masked_conv/dkernel/reduce.h"

#include <algorithm>

#include "cuda/core/device.h"
#include "cuda/core/launch.h"

namespace jaxsparse {
namespace {

inline constexpr int kColumns = 32, kRanges = 8;

__global__ void __launch_bounds__(kColumns* kRanges)
    DkernelReduce(const float* partial, int splits, int64_t elements, float* out) {
  __shared__ float sums[kRanges][kColumns];
  const int column = threadIdx.x % kColumns, range = threadIdx.x / kColumns;
  const int64_t blocks = (elements + kColumns - 1) / kColumns;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64_t e = block * kColumns + column;
    float sum = 0.0f;
    if (e < elements) {
#pragma unroll 8
      for (int s = splits * range / kRanges; s < splits * (range + 1) / kRanges; ++s) {
        sum += partial[s * elements + e];
      }
    }
    sums[range][column] = sum;
    __syncthreads();
    if (range == 0 && e < elements) {
#pragma unroll
      for (int r = 1; r < kRanges; ++r) sum += sums[r][column];
      out[e] = sum;
    }
    __syncthreads();
  }
}

}  // namespace

cudaError_t LaunchDkernelReduce(const float* partial, int64_t splits, int64_t elements, float* out,
                                cudaStream_t stream) {
  const int64_t blocks = std::min<int64_t>(CeilDiv(elements, kColumns), MultiProcessors() * 64);
  DkernelReduce<<<static_cast<unsigned>(blocks), kColumns * kRanges, 0, stream>>>(
      partial, static_cast<int>(splits), elements, out);
  return cudaGetLastError();
}

cudaError_t PrepareDkernelReduce() { return PrepareKernel(&DkernelReduce, 0); }

}  // namespace jaxsparse
