// The plan of a grouped product: one block sums up the group sizes and lists the row tiles, the
// others clear the counters of the combine.
//
// Floor: a launch and two trips to memory, about 3 us; 4 bytes a group and 16 a row tile.
#include "cuda/kernels/grouped_matmul/plan.h"

#include <algorithm>

namespace jaxsparse {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

struct Sum {
  long long rows, tiles;
};

// Inclusive sum over the block's threads; `total` is the whole block's.
__device__ Sum BlockSum(Sum v, Sum (&warps)[kWarps], Sum* total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int d = 1; d < 32; d *= 2) {
    const long long rows = __shfl_up_sync(0xFFFFFFFFu, v.rows, d);
    const long long tiles = __shfl_up_sync(0xFFFFFFFFu, v.tiles, d);
    if (lane >= d) v = {v.rows + rows, v.tiles + tiles};
  }
  __syncthreads();
  if (lane == 31) warps[warp] = v;
  __syncthreads();
  *total = {0, 0};
  for (int w = 0; w < kWarps; ++w) {
    if (w == warp) v = {v.rows + total->rows, v.tiles + total->tiles};
    *total = {total->rows + warps[w].rows, total->tiles + warps[w].tiles};
  }
  return v;
}

// A warp lists the tiles of its lanes' groups, one group after the other.
__device__ void ListTiles(const GroupedPlan& plan, int tile_m, int group, int first, int rows,
                          int tile) {
  const int lane = threadIdx.x % 32;
  for (uint32_t left = __ballot_sync(0xFFFFFFFFu, rows > 0); left != 0; left &= left - 1) {
    const int source = __ffs(left) - 1;
    const int g = __shfl_sync(0xFFFFFFFFu, group, source);
    const int begin = __shfl_sync(0xFFFFFFFFu, first, source);
    const int count = __shfl_sync(0xFFFFFFFFu, rows, source);
    const int at = __shfl_sync(0xFFFFFFFFu, tile, source);
    const int tiles = (count + tile_m - 1) / tile_m;
    const int width = BandWidth(tiles);
    for (int i = lane; i < tiles; i += 32) {
      const int place = i % width, here = min(width, tiles - (i - place));
      plan.tiles[at + i] = {
          g, begin + i * tile_m,          static_cast<int16_t>(min(tile_m, count - i * tile_m)),
          0, static_cast<int16_t>(place), static_cast<int16_t>(here)};
    }
  }
}

__device__ void MakePlan(const PlanRequest& r, const GroupedPlan& plan) {
  __shared__ Sum warps[kWarps];
  Sum before = {0, 0};
  const int groups = static_cast<int>(r.groups), limit = static_cast<int>(r.sorted_rows);
  for (int base = 0; base < groups; base += kThreads) {
    const int g = base + threadIdx.x;
    const long long size = g < groups ? max(__ldg(r.sizes + g), 0) : 0;
    Sum total;
    const long long end = before.rows + BlockSum({size, 0}, warps, &total).rows;
    const int first = static_cast<int>(min(end - size, static_cast<long long>(limit)));
    const int rows = static_cast<int>(min(end, static_cast<long long>(limit))) - first;
    const long long tiles = (rows + r.tile_m - 1) / r.tile_m;
    Sum chunk;
    const long long tile_end = before.tiles + BlockSum({0, tiles}, warps, &chunk).tiles;
    if (g < groups) plan.starts[g] = first;
    ListTiles(plan, r.tile_m, g, first, rows, static_cast<int>(tile_end - tiles));
    before = {before.rows + total.rows, before.tiles + chunk.tiles};
  }
  const int owned = static_cast<int>(min(before.rows, static_cast<long long>(limit)));
  int tiles = static_cast<int>(before.tiles);
  if (r.unowned && threadIdx.x < 32)
    ListTiles(plan, r.tile_m, -1, owned, threadIdx.x == 0 ? limit - owned : 0, tiles);
  if (r.unowned) tiles += (limit - owned + r.tile_m - 1) / r.tile_m;
  if (threadIdx.x == 0) {
    plan.header[0] = tiles;
    plan.header[1] = owned;
    plan.starts[groups] = owned;
  }
}

// Block `block` of `blocks` does its share.
__device__ void ClearCounts(int32_t* counts, int64_t words, int64_t block, int64_t blocks) {
  for (int64_t i = block * kThreads + threadIdx.x; i < words; i += blocks * kThreads) counts[i] = 0;
}

__global__ void __launch_bounds__(kThreads)
    GroupedPlanKernel(const PlanRequest request, const GroupedPlan plan) {
  if (blockIdx.x == 0) return MakePlan(request, plan);
  ClearCounts(request.counts, request.count_words, blockIdx.x - 1, gridDim.x - 1);
}

__global__ void __launch_bounds__(kThreads) ClearCountsKernel(int32_t* counts, int64_t words) {
  ClearCounts(counts, words, blockIdx.x, gridDim.x);
}

int64_t ClearingBlocks(int64_t words) {
  return std::min<int64_t>((words + 4 * kThreads - 1) / (4 * kThreads), 128);
}

}  // namespace

cudaError_t LaunchClearCounts(int32_t* counts, int64_t words, cudaStream_t stream) {
  if (words == 0) return cudaSuccess;
  ClearCountsKernel<<<static_cast<unsigned>(ClearingBlocks(words)), kThreads, 0, stream>>>(counts,
                                                                                           words);
  return cudaGetLastError();
}

cudaError_t LaunchGroupedPlan(const PlanRequest& request, const GroupedPlan& plan,
                              cudaStream_t stream) {
  const int64_t words = request.counts == nullptr ? 0 : request.count_words;
  const auto blocks = static_cast<unsigned>(1 + ClearingBlocks(words));
  GroupedPlanKernel<<<blocks, kThreads, 0, stream>>>(request, plan);
  return cudaGetLastError();
}

}  // namespace jaxsparse
