// Index of a sampled product: for every panel of 64 rows of one operand, the units of the other
// that some of them want. One block of threads a panel; no sort, no synchronisation across blocks.
//
// Floor: the mask's bits once; latency is what it costs. Measured (H200, 4096 x 4096): 2.0 us at
// 32x64, 6.3 at 32x1.
#include "cuda/core/launch.h"
#include "cuda/core/overlap.cuh"
#include "cuda/kernels/masked_matmul/bits.cuh"
#include "cuda/kernels/masked_matmul/lists.cuh"
#include "cuda/kernels/masked_matmul/sampled/params.cuh"

namespace jaxsparse {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;

// The bits of units 32*w to 32*w + 31, this lane's alone; a unit is 32 rows of the result, and the
// panel is 64 columns of it.
__device__ __forceinline__ bool WantsRows(const SampledParams& p, int64_t list, int panel,
                                          int unit) {
  return unit < p.units &&
         HasEntry(p.bits, list, int64_t{unit} * kUnitRows, int64_t{panel} * kPanelRows);
}

// Whether a row of the panel wants column `unit` of the result.
__device__ __forceinline__ bool WantsColumn(const SampledParams& p, int64_t list, int panel,
                                            int unit) {
  if (unit >= p.units) return false;
  const auto size = static_cast<uint32_t>(min(p.bits.row_size, int64_t{p.rows}));
  const uint32_t first = static_cast<uint32_t>(panel) * kPanelRows;
  const uint32_t last = min(first + kPanelRows, static_cast<uint32_t>(p.rows)) - 1;
  const uint32_t block = static_cast<uint32_t>(unit) / static_cast<uint32_t>(p.bits.col_size);
  const uint32_t* words =
      p.bits.words + (p.bits.lists == 1 ? 0 : list) * p.bits.rows * p.bits.row_words;
  uint32_t any = 0;
  for (uint32_t line = first / size; line <= last / size; ++line) {
    any |= __ldg(words + int64_t{line} * p.bits.row_words + block / 32);
  }
  return (any >> (block % 32)) & 1;
}

template <bool Boxes>
__global__ void __launch_bounds__(kThreads)
    SampledIndexKernel(const __grid_constant__ SampledParams p) {
  extern __shared__ uint32_t united[];
  __shared__ int warp_counts[kWarps];
  LetNextStart();
  const int64_t list = blockIdx.x / p.panels;
  const int panel = static_cast<int>(blockIdx.x % p.panels);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int share = (p.unit_words + kWarps - 1) / kWarps;
  const int begin = min(warp * share, p.unit_words), end = min(begin + share, p.unit_words);
  int mine = 0;
#pragma unroll 4
  for (int w = begin; w < end; ++w) {
    const int unit = 32 * w + lane;
    const bool wanted = Boxes ? WantsRows(p, list, panel, unit) : WantsColumn(p, list, panel, unit);
    const uint32_t bits = __ballot_sync(~0u, wanted);
    if (lane == 0) united[w] = bits;
    mine += __popc(bits);
  }
  auto [at, total] = PartOfWarp(mine, warp_counts);
  int32_t* listed = p.listed + int64_t{blockIdx.x} * p.units;
  for (int w = begin; w < end; ++w) {
    const uint32_t bits = united[w];
    at = ListWord(bits, w, at, listed);
    if (lane == 0) p.united[int64_t{blockIdx.x} * p.unit_words + w] = bits;
  }
  if (threadIdx.x == 0) p.counts[blockIdx.x] = total;
}

constexpr int kMostShared = 128 << 10;  // a bit a column of a result of 2^20

}  // namespace

cudaError_t LaunchSampledIndex(const SampledParams& p, bool boxes, cudaStream_t stream) {
  const auto grid = static_cast<unsigned>(p.bits.lists * p.panels);
  const int bytes = 4 * p.unit_words;
  if (boxes) {
    SampledIndexKernel<true><<<grid, kThreads, bytes, stream>>>(p);
  } else {
    SampledIndexKernel<false><<<grid, kThreads, bytes, stream>>>(p);
  }
  return cudaGetLastError();
}

cudaError_t PrepareSampledIndex() {
  const cudaError_t status = PrepareKernel(&SampledIndexKernel<true>, kMostShared);
  return status == cudaSuccess ? PrepareKernel(&SampledIndexKernel<false>, kMostShared) : status;
}

}  // namespace jaxsparse
