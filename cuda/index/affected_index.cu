// From the bytes of a mask of edited pixels to the lists of the tiles that the edit reaches at
// several resolutions: one launch.
//
// Floor: a mask byte read, 1/8 written as words a stage, 4 bytes an entry: 1 M pixels and two
// stages of 8x8 tiles 1.5 MB, 0.4 us at 4.3 TB/s. What counts is one chain: launch, load, a wait
// for all blocks, store.
//
// Tile: an item is one row of tiles of one stage. Its block packs the rows of the mask that the
// windows of its pixels touch (packed again by the items beside it: a few KB of a mask that the L2
// cache holds, where words in memory would cost a second wait), ORs them along columns and then
// along rows, so that windows of any size cost their rows once.
//
// Pipeline: load and pack; OR; count; publish the item's sum and wait once for the grid (a
// cooperative launch); store entries, then -1 behind the last. Places follow from sums, so lists
// ascend and no memory has to be zero.
//
// Predicted: launch 1.1 us, loads 1, ORs and tests 0.8, wait 1.1, store 0.6: 4.6 us.
#include "cuda/index/affected_index.h"

#include <cooperative_groups.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "cuda/core/device.h"
#include "cuda/index/affected_rows.cuh"

namespace jaxsparse {
namespace {

constexpr int kThreads = kAffectedThreads, kWarps = kAffectedWarps;
constexpr int kBlocksEach = 2;  // of a multiprocessor, at most

// The sums of two values over the block, in every thread; all must call.
__device__ int2 BlockSums(int32_t a, int32_t b) {
  __shared__ int2 sums[kWarps];
  const int lane = threadIdx.x % 32;
  const int2 own = {__reduce_add_sync(~0u, a), __reduce_add_sync(~0u, b)};
  __syncthreads();  // the sums of the call before were read
  if (lane == 0) sums[threadIdx.x / 32] = own;
  __syncthreads();
  const int2 other = lane < kWarps ? sums[lane] : int2{0, 0};
  return {__reduce_add_sync(~0u, other.x), __reduce_add_sync(~0u, other.y)};
}

// The sum over the threads before this one; all must call.
__device__ int32_t BlockScan(int32_t value) {
  __shared__ int32_t sums[kWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int32_t upto = value;
#pragma unroll
  for (int k = 1; k < 32; k *= 2) {
    const int32_t left = __shfl_up_sync(~0u, upto, k);
    if (lane >= k) upto += left;
  }
  __syncthreads();
  if (lane == 31) sums[warp] = upto;
  __syncthreads();
  return upto - value + __reduce_add_sync(~0u, lane < warp ? sums[lane] : 0);
}

// From bytes to the item's words and the number of its tiles; `first` becomes the tiles of this
// thread's first word column.
__device__ int32_t BuildItem(const AffectedPlan& plan, const AffectedItem& item, uint32_t* shared,
                             uint32_t* first) {
  const AffectedArgs& args = plan.args;
  const AffectedAxis& axis = item.stage->rows;
  AffectedRows at{shared, nullptr, Words(args.width)};
  const int64_t low = int64_t{item.y} * axis.stride - axis.pad;
  const int64_t high = low + int64_t{item.rows - 1} * axis.stride + axis.taps;
  const int32_t from = static_cast<int32_t>(max(low, int64_t{0}));
  const int32_t rows =
      item.rows == 0 ? 0 : max(static_cast<int32_t>(min(high, args.height)) - from, 0);
  at.merged = shared + plan.packed_words;
  PackRows(args, item, at, from, rows);
  __syncthreads();
  MergeRows(item, at, from, rows);
  __syncthreads();
  SpreadRows(item, at, item.stage->words + item.first_word(args.images));
  __syncthreads();
  int32_t mine = 0;
  for (int32_t w = threadIdx.x; w < item.row_words(); w += kThreads) {
    const uint32_t tiles = TestTiles(item, at.packed, w);
    if (w == static_cast<int32_t>(threadIdx.x)) *first = tiles;
    mine += __popc(tiles);
  }
  return BlockSums(mine, 0).x;
}

// Where an item's tiles go in its list, and how many the list has.
struct ItemPlace {
  int32_t before, total;
};

// From the sums that the blocks left in `sums`.
__device__ ItemPlace FindItem(const AffectedItem& item, const int32_t* sums) {
  int32_t before = 0, total = 0;
  for (int32_t i = threadIdx.x; i < item.count; i += kThreads) {
    const int32_t sum = __ldcg(sums + i);
    total += sum;
    if (i < item.index) before += sum;
  }
  const int2 found = BlockSums(before, total);
  return {found.x, found.y};
}

// Stores the item's entries and its part of what lies behind the list's last. `first` is of this
// thread's first word column, where `known`.
__device__ void StoreItem(const AffectedPlan& plan, const AffectedItem& item, ItemPlace place,
                          uint32_t first, bool known) {
  const AffectedStage& stage = *item.stage;
  const uint32_t* words = stage.words + item.first_word(plan.args.images);
  int32_t* ids = stage.ids + item.list * stage.capacity;
  const int32_t cols = (stage.width + (1 << stage.tw_log2) - 1) >> stage.tw_log2;
  const int32_t tile_row = item.index * cols;
  int64_t to = place.before;
  for (int32_t w0 = 0; w0 < item.row_words(); w0 += kThreads) {
    const int32_t w = w0 + threadIdx.x;
    uint32_t tiles = 0;
    if (w < item.row_words()) tiles = known && w0 == 0 ? first : TestTiles(item, words, w);
    const int32_t own = __popc(tiles), before = BlockScan(own);
    int64_t at = to + before;
    for (; tiles != 0; tiles &= tiles - 1, ++at) {
      const int32_t column = (32 * w + __ffs(tiles) - 1) >> stage.tw_log2;
      if (at < stage.capacity) ids[at] = tile_row + column;
    }
    if (w0 + kThreads < item.row_words()) to += BlockSums(own, 0).x;
  }
  const int64_t step = int64_t{item.count} * kThreads;
  for (int64_t i = place.total + int64_t{item.index} * kThreads + threadIdx.x; i < stage.capacity;
       i += step) {
    ids[i] = -1;
  }
  if (item.index == 0 && threadIdx.x == 0) {
    stage.count[item.list] = place.total;
    stage.overflow[item.list] = place.total > stage.capacity;
  }
}

__global__ void __launch_bounds__(kThreads, kBlocksEach)
    ListAffected(const __grid_constant__ AffectedPlan plan) {
  extern __shared__ uint32_t shared[];
  int32_t* sums = plan.args.scratch;
  uint32_t first = 0;
  for (int32_t i = blockIdx.x; i < plan.items; i += gridDim.x) {
    uint32_t tiles = 0;
    const int32_t sum = BuildItem(plan, AffectedItem(plan, i), shared, &tiles);
    if (i == static_cast<int32_t>(blockIdx.x)) first = tiles;
    if (threadIdx.x == 0) __stcg(sums + i, sum);
  }
  cooperative_groups::this_grid().sync();
  for (int32_t i = blockIdx.x; i < plan.items; i += gridDim.x) {
    const AffectedItem item(plan, i);
    StoreItem(plan, item, FindItem(item, sums + (i - item.index)), first,
              i == static_cast<int32_t>(blockIdx.x));
  }
}

AffectedPlan MakePlan(const AffectedArgs& args) {
  AffectedPlan plan{};
  plan.args = args;
  for (int t = 0; t < args.stages; ++t) {
    const AffectedStage& stage = args.stage[t];
    const int32_t side = 1 << stage.th_log2;
    plan.tile_rows[t] = (stage.height + side - 1) / side;
    const int64_t rows = args.images * plan.tile_rows[t];
    plan.first_item[t + 1] = plan.first_item[t] + static_cast<int32_t>(std::max<int64_t>(rows, 1));
    for (int p = 0; p < 32; p += 1 << stage.tw_log2) plan.tile_starts[t] |= 1u << p;
    const int64_t words = std::max<int64_t>(
        int64_t{std::min<int64_t>(TouchedRows(stage), args.height)} * Words(args.width),
        int64_t{side} * Words(stage.width));
    plan.packed_words = std::max(plan.packed_words, words);
    plan.merged_words = std::max(plan.merged_words, int64_t{side} * Words(args.width));
  }
  plan.items = args.lists * plan.first_item[args.stages];
  return plan;
}

// Multiprocessors of the current device, the kernel's limit raised there.
cudaError_t Processors(int* processors) {
  static std::mutex* mutex = new std::mutex;
  static auto* known = new std::array<int, kMaxDevices>{};
  int device = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  const std::lock_guard<std::mutex> lock(*mutex);
  const bool kept = device < static_cast<int>(known->size());
  *processors = kept ? (*known)[device] : 0;
  if (*processors != 0) return cudaSuccess;
  status = cudaFuncSetAttribute(ListAffected, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(kMostAffectedShared));
  if (status != cudaSuccess) return status;
  status = cudaDeviceGetAttribute(processors, cudaDevAttrMultiProcessorCount, device);
  if (status == cudaSuccess && kept) (*known)[device] = *processors;
  return status;
}

}  // namespace

int64_t AffectedItems(const AffectedArgs& args) {
  int64_t items = 0;
  for (int t = 0; t < args.stages; ++t) {
    const int64_t side = int64_t{1} << args.stage[t].th_log2;
    const int64_t rows = (args.stage[t].height + side - 1) / side;
    items += std::max<int64_t>(args.images * rows, 1);
  }
  return args.lists * items;
}

int64_t AffectedShared(const AffectedArgs& args) {
  const AffectedPlan plan = MakePlan(args);
  return 4 * (plan.packed_words + plan.merged_words);
}

cudaError_t PrepareAffected() {
  int processors = 0;
  return Processors(&processors);
}

cudaError_t AffectedIndex(const AffectedArgs& args, cudaStream_t stream) {
  if (args.stages < 1 || AffectedShared(args) > kMostAffectedShared) return cudaErrorInvalidValue;
  if (AffectedItems(args) > INT32_MAX / 2) return cudaErrorInvalidValue;
  if (args.lists == 0) return cudaSuccess;
  const size_t shared = static_cast<size_t>(AffectedShared(args));
  int processors = 0, resident = 0;
  cudaError_t status = Processors(&processors);
  if (status != cudaSuccess) return status;
  // All blocks wait for each other, so all must be resident.
  status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, ListAffected, kThreads, shared);
  if (status != cudaSuccess) return status;
  if (resident < 1) return cudaErrorInvalidConfiguration;
  const AffectedPlan plan = MakePlan(args);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(
      std::min<int64_t>(plan.items, std::min(resident, kBlocksEach) * processors));
  config.blockDim = kThreads;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, ListAffected, plan);
}

}  // namespace jaxsparse
