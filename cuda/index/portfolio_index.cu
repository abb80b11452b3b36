// From the bytes of a mask to its words, the lists of its active tiles for several tile sizes,
// their counts, and the cheapest of several variants: one launch, each byte read once.
//
// Floor: a mask byte read, 1/8 written as words, 4 bytes written per list entry. 1 M pixels with
// 4x4 tiles move 1.4 MB, 0.3 us at 4.3 TB/s; 4 M pixels with seven sizes 25 MB, 6 us. Under 64 K
// tiles what counts is one chain: launch, load, wait for all blocks, store.
//
// Tile: a lane per word of 32 pixels, lanes of one strip (as high as the highest tile) together, so
// rows are OR-ed by shuffles and the word never leaves its register. A warp owns a run of words and
// a block a run of warps, so places follow from sums: no atomic addition, and every run of the
// kernel gives the same lists. One list alone ascends.
//
// Pipeline: load, pack and count; publish a block's sums and wait once for the team; store entries,
// then -1 behind the last. A team is a cluster of up to 16 blocks (its barrier costs little) or,
// for masks that need every multiprocessor, a cooperative launch. Neither needs memory that is
// zero.
//
// Predicted 3-4 us in a graph until bytes count. Measured on an H200, in a graph of 20 calls, us:
// 64 K tiles of 4x4 5.9, of 1x1 7.1; 4 M pixels in tiles of 4x4 7.8, of 1x1 14; seven sizes of
// 128x128 pixels 14, of 1024x1024 16, of 2048x2048 23. A list costs 1.2-1.5 us also where there are
// next to no words: a chain of shuffles and parameter reads in each warp, not bytes. More in
// docs/kernels/tile_index.md.
#include "cuda/index/portfolio_index.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "cuda/index/strips.cuh"
#include "cuda/index/team.cuh"

namespace jaxsparse {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int64_t kBytesPerBlock = 8 << 10;   // below which another block does not pay
constexpr int64_t kClusterBytes = 384 << 10;  // above which a cluster is too few blocks
constexpr int kLargestCluster = 16, kPortableCluster = 8;

// The sums of a block and its team, list by list.
struct Places {
  int32_t warp[kMaxPortfolio][kWarps];  // a warp's tiles, then those of the warps before it
  int32_t before[kMaxPortfolio];        // of the blocks before this one
  int32_t total[kMaxPortfolio];         // of all blocks

  __device__ static Places& Shared() {
    __shared__ Places places;
    return places;
  }

  // Warp t: this block's places and sum for list t.
  template <class Team>
  __device__ void ScanWarps(const Team& team, int64_t turn, int sizes) {
    const int lane = threadIdx.x % 32, t = threadIdx.x / 32;
    if (t >= sizes) return;
    int32_t sum = warp[t][lane];
    for (int step = 1; step < 32; step *= 2) {
      const int32_t left = __shfl_up_sync(~0u, sum, step);
      if (lane >= step) sum += left;
    }
    warp[t][lane] = sum - warp[t][lane];
    if (lane == 31) team.Publish(turn, t, sum);
  }

  // Warp t: the sums of the other blocks for list t.
  template <class Team>
  __device__ void AddBlocks(const Team& team, int64_t turn, int sizes) {
    const int lane = threadIdx.x % 32, t = threadIdx.x / 32;
    if (t >= sizes) return;
    int32_t lower = 0, all = 0;
    for (int32_t block = lane; block < team.blocks(); block += 32) {
      const int32_t sum = team.Read(turn, t, block);
      all += sum;
      if (block < team.rank()) lower += sum;
    }
    lower = __reduce_add_sync(~0u, lower);
    all = __reduce_add_sync(~0u, all);
    if (lane == 0) {
      before[t] = lower;
      total[t] = all;
    }
  }
};

// The run of items of one warp.
struct WarpRun {
  int32_t first, per_step, steps;

  __device__ WarpRun(const StripArgs& args, int32_t rank)
      : per_step(32 >> args.strip_log2),
        steps(static_cast<int32_t>(threadIdx.x / 32) < args.warps ? args.steps : 0) {
    first = (rank * args.warps + static_cast<int32_t>(threadIdx.x / 32)) * args.steps * per_step;
  }
};

// Packs the warp's words and counts their tiles; returns the word of the first step. The loop over
// lists stays rolled: code that runs once a launch costs more to fetch than to execute.
__device__ uint32_t CountTiles(const StripArgs& args, const StripWords& words, const WarpRun& run) {
  Places& places = Places::Shared();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint32_t first = 0;
  if (lane < args.sizes) places.warp[lane][warp] = 0;
  __syncwarp();
  for (int32_t step = 0; step < run.steps; ++step) {
    const uint32_t word = words.Pack(words.Locate(run.first + step * run.per_step));
    if (step == 0) first = word;
    StripTiles tiles(word);
#pragma unroll 1
    for (int t = 0; t < args.sizes; ++t) {
      const int32_t sum = __reduce_add_sync(~0u, __popc(tiles.Test(args.list[t])));
      if (lane == 0) places.warp[t][warp] += sum;
    }
  }
  return first;
}

// Tests the warp's words again and stores their tiles.
__device__ void StoreTiles(const StripArgs& args, int64_t list, const StripWords& words,
                           const WarpRun& run, uint32_t first) {
  Places& places = Places::Shared();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int32_t step = 0; step < run.steps; ++step) {
    const LaneWord at = words.Locate(run.first + step * run.per_step);
    StripTiles tiles(step == 0 ? first : words.Reload(at));
#pragma unroll 1
    for (int t = 0; t < args.sizes; ++t) {
      const uint32_t bits = tiles.Test(args.list[t]);
      if (!__any_sync(~0u, bits != 0)) continue;
      int32_t sum = __popc(bits);
      for (int k = 1; k < 32; k *= 2) {
        const int32_t left = __shfl_up_sync(~0u, sum, k);
        if (lane >= k) sum += left;
      }
      const int32_t place = places.before[t] + places.warp[t][warp];
      StripStore::Store(args.list[t], list, bits, place + sum - __popc(bits), at);
      if (lane == 31) places.warp[t][warp] += sum;
      __syncwarp();
    }
  }
}

// Counts, flags, and -1 behind the entries.
__device__ void Close(const StripArgs& args, int64_t list, int32_t rank, int32_t blocks) {
  const Places& places = Places::Shared();
  const int64_t thread = static_cast<int64_t>(rank) * kThreads + threadIdx.x;
  const int64_t threads = static_cast<int64_t>(blocks) * kThreads;
  for (int t = 0; t < args.sizes; ++t) {
    const StripList& out = args.list[t];
    int32_t* ids = out.ids + list * out.capacity;
    for (int64_t i = places.total[t] + thread; i < out.capacity; i += threads) ids[i] = -1;
    if (thread == t) {
      args.count[list * args.sizes + out.slot] = places.total[t];
      args.overflow[list * args.sizes + out.slot] = places.total[t] > out.capacity;
    }
  }
}

// The first variant of the least cost a + b * count; one whose list overflowed costs infinity. The
// last warp of a team's last block does it.
__device__ void Choose(const StripArgs& args, int64_t list) {
  const Places& places = Places::Shared();
  const int lane = threadIdx.x % 32;
  float best = INFINITY;
  int32_t choice = INT32_MAX;
  for (int32_t v = lane; v < args.variants; v += 32) {
    const float* row = args.costs + 3 * (list * args.variants + v);
    const float named = row[2];
    float cost = row[0];
    for (int t = 0; t < args.sizes; ++t) {
      if (named != static_cast<float>(args.list[t].slot)) continue;
      cost = places.total[t] > args.list[t].capacity
                 ? INFINITY
                 : fmaf(row[1], static_cast<float>(places.total[t]), cost);
    }
    if (cost < best) {
      best = cost;
      choice = v;
    }
  }
  for (int step = 16; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(~0u, best, step);
    const int32_t from = __shfl_xor_sync(~0u, choice, step);
    if (other < best || (other == best && from < choice)) {
      best = other;
      choice = from;
    }
  }
  if (lane == 0) args.choice[list] = choice == INT32_MAX ? 0 : choice;
}

template <class Team>
__global__ void __launch_bounds__(kThreads, 1) BuildLists(const __grid_constant__ StripArgs args) {
  const Team team(args.scratch);
  Places& places = Places::Shared();
  const WarpRun run(args, team.rank());
  for (int64_t list = team.first_list(); list < args.lists; list += team.list_stride()) {
    const StripWords words(args, list);
    const uint32_t first = CountTiles(args, words, run);
    __syncthreads();
    places.ScanWarps(team, list, args.sizes);
    team.Wait();
    places.AddBlocks(team, list, args.sizes);
    __syncthreads();
    const bool last_warp = team.rank() == team.blocks() - 1 && threadIdx.x / 32 == kWarps - 1;
    if (last_warp && args.choice != nullptr) Choose(args, list);
    StoreTiles(args, list, words, run, first);
    Close(args, list, team.rank(), team.blocks());
    team.Finish();
  }
}

// The strip arguments of a launch by `blocks` blocks a mask.
StripArgs ToStrips(const PortfolioArgs& args, int32_t blocks) {
  StripArgs out{};
  out.mask = args.mask;
  out.words = args.words;
  out.lists = args.lists;
  out.images = args.images;
  out.height = static_cast<int32_t>(args.height);
  out.width = static_cast<int32_t>(args.width);
  out.row_words = static_cast<int32_t>((args.width + 31) / 32);
  out.sizes = args.sizes;
  out.variants = args.variants;
  for (int32_t t = 0; t < args.sizes; ++t) {
    const PortfolioList& list = args.list[t];
    const int64_t th = int64_t{1} << list.th_log2, tw = int64_t{1} << list.tw_log2;
    uint32_t starts = 0;
    for (int64_t p = 0; p < 32; p += tw) starts |= 1u << p;
    out.list[t] = {list.th_log2,
                   list.tw_log2,
                   static_cast<int32_t>((args.height + th - 1) / th),
                   static_cast<int32_t>((args.width + tw - 1) / tw),
                   t,
                   starts,
                   list.capacity,
                   list.ids};
    out.strip_log2 = std::max(out.strip_log2, list.th_log2);
  }
  std::stable_sort(out.list, out.list + args.sizes,
                   [](const StripList& a, const StripList& b) { return a.th_log2 < b.th_log2; });
  const int64_t strip = int64_t{1} << out.strip_log2;
  out.strips = static_cast<int32_t>((args.height + strip - 1) / strip);
  const int64_t items = args.images * out.strips * out.row_words;
  const int64_t runs = (items + 32 / strip - 1) / (32 / strip);  // of one step
  out.items = static_cast<int32_t>(items);
  out.steps = static_cast<int32_t>(
      std::max<int64_t>((runs + kWarps * blocks - 1) / (int64_t{kWarps} * blocks), 1));
  const int64_t per_block = static_cast<int64_t>(blocks) * out.steps;
  out.warps = static_cast<int32_t>((runs + per_block - 1) / per_block);
  out.costs = args.costs;
  out.count = args.count;
  out.overflow = args.overflow;
  out.choice = args.choice;
  out.scratch = args.scratch;
  return out;
}

// The largest cluster of BuildLists that the device can hold; 1 where there are no clusters.
cudaError_t QueryLargestCluster(int device, int* largest) {
  int major = 0;
  *largest = 1;
  cudaError_t status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (status != cudaSuccess || major < 9) return status;
  const auto kernel = BuildLists<ClusterTeam>;
  status = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (status != cudaSuccess) return status;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {kLargestCluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = kLargestCluster;
  config.blockDim = kThreads;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  status = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
  *largest = clusters > 0 ? kLargestCluster : kPortableCluster;
  return status;
}

// The same, asked once per device.
cudaError_t LargestCluster(int device, int* largest) {
  static std::array<std::atomic<int>, 64> known{};
  if (device >= static_cast<int>(known.size())) return QueryLargestCluster(device, largest);
  *largest = known[device].load();
  if (*largest > 0) return cudaSuccess;
  const cudaError_t status = QueryLargestCluster(device, largest);
  if (status == cudaSuccess) known[device].store(*largest);
  return status;
}

}  // namespace

cudaError_t PlanPortfolio(const PortfolioArgs& args, PortfolioTeam* team) {
  int device = 0, largest = 1, processors = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  if ((status = LargestCluster(device, &largest)) != cudaSuccess) return status;
  status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (status != cudaSuccess) return status;
  int64_t bytes = args.images * args.height * args.width;
  for (int32_t t = 0; t < args.sizes; ++t) bytes += 4 * args.list[t].capacity;
  int32_t blocks = 1;
  while (blocks < largest && blocks * kBytesPerBlock < bytes) blocks *= 2;
  *team = {true, blocks};
  const bool masks_fill_device = args.lists * blocks >= 2 * processors;
  if (bytes > kClusterBytes * blocks / kLargestCluster && !masks_fill_device) {
    *team = {false, std::min(processors, kMaxTeamBlocks)};
  }
  return cudaSuccess;
}

cudaError_t PortfolioIndex(const PortfolioArgs& args, PortfolioTeam team, cudaStream_t stream) {
  if (args.lists == 0) return cudaSuccess;
  StripArgs strips = ToStrips(args, team.blocks);
  cudaLaunchAttribute attribute{};
  cudaLaunchConfig_t config{};
  config.blockDim = kThreads;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  if (!team.cluster) {
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    config.gridDim = static_cast<unsigned>(team.blocks);
    return cudaLaunchKernelEx(&config, BuildLists<GridTeam>, strips);
  }
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(team.blocks), 1, 1};
  if (team.blocks == 1) config.numAttrs = 0;
  const int64_t masks = std::min<int64_t>(args.lists, (int64_t{1} << 30) / team.blocks);
  config.gridDim = static_cast<unsigned>(masks * team.blocks);
  return cudaLaunchKernelEx(&config, BuildLists<ClusterTeam>, strips);
}

}  // namespace jaxsparse
