// From the bytes of a mask to its words, the lists of its active tiles for several tile sizes,
// their counts, and the cheapest of several variants: one launch, each byte read once.
//
// Floor: a mask byte read, 1/8 written as words, 4 bytes written per list entry. 1 M pixels with
// 4x4 tiles move 1.4 MB, 0.3 us at 4.3 TB/s; 4 M pixels with seven sizes 25 MB, 6 us. Under 64 K
// tiles what counts is one chain: launch, load, wait for all blocks, store.
//
// Tile: a block owns a run of segments of the mask, as words in shared memory; each list has warps
// of its own, a lane per word of a tile row. Places follow from sums: no atomic addition, and every
// run of the kernel gives the same lists. One list alone ascends.
//
// Pipeline: load and pack; count; publish a block's sums and wait once for the team; store entries,
// then -1 behind the last. A team is a cluster of up to 8 blocks (its barrier costs little) or, for
// masks that need more, a cooperative launch. Neither needs memory that is zero.
//
// Predicted 3-4 us in a graph until bytes count: what is short of it is one chain of latencies, not
// bytes. Measured in docs/kernels/tile_index.md.
#include "cuda/index/portfolio_index.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "cuda/index/cost.cuh"
#include "cuda/index/strips.cuh"
#include "cuda/index/team.cuh"

namespace jaxsparse {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int64_t kBytesPerBlock = 16 << 10;  // below which another block does not pay
constexpr int64_t kClusterBytes = 128 << 10;  // above which a cluster is too few blocks
constexpr int kLargestCluster = 8, kSmallestGrid = 32;
constexpr int64_t kResidentBytes = 64 << 10;  // of words in a block's shared memory

// What the warps of a block tell each other.
struct Sums {
  int32_t warp[kWarps];           // a warp's tiles
  int32_t before[kMaxPortfolio];  // a list's, in the blocks before this one
  int32_t total[kMaxPortfolio];   // and in the whole mask
  __device__ static Sums& Shared() {
    __shared__ Sums sums;
    return sums;
  }
};

// Which list this warp builds.
__device__ int ListOfWarp(const StripArgs& args) {
  const int warp = static_cast<int>(threadIdx.x / 32);
  return static_cast<int>(args.list_of_warp[warp / 16] >> (4 * (warp % 16)) & 15);
}

__device__ int32_t CountTiles(const WarpShare& share) {
  int32_t sum = 0;
  for (int32_t step = share.first(); step < share.stop(); step += 32) {
    sum += __popc(share.Test(step, nullptr));
  }
  return __reduce_add_sync(~0u, sum);
}

// Where this warp's tiles go among those of its block, and how many the block has; every warp adds
// up for itself.
struct BlockPlace {
  int32_t before, all;

  __device__ explicit BlockPlace(const StripList& list) {
    const int lane = threadIdx.x % 32, warp = static_cast<int>(threadIdx.x / 32);
    const bool ours = lane >= list.first_warp && lane < list.first_warp + list.warps;
    const int32_t sum = ours ? Sums::Shared().warp[lane] : 0;
    before = __reduce_add_sync(~0u, lane < warp ? sum : 0);
    all = __reduce_add_sync(~0u, sum);
  }
};

// The same among the blocks of a team; one warp a list, for many would wait for each other's reads.
template <class Team>
__device__ void AddBlocks(const Team& team, int64_t turn, int t) {
  int32_t lower = 0, all = 0;
  for (int32_t block = threadIdx.x % 32; block < team.blocks(); block += 32) {
    const int32_t sum = team.Read(turn, t, block);
    all += sum;
    if (block < team.rank()) lower += sum;
  }
  lower = __reduce_add_sync(~0u, lower);
  all = __reduce_add_sync(~0u, all);
  if (threadIdx.x % 32 == 0) {
    Sums::Shared().before[t] = lower;
    Sums::Shared().total[t] = all;
  }
}

// Tests the warp's words again and stores their tiles from `place` on.
__device__ void StoreTiles(const WarpShare& share, const StripList& list, int32_t* ids,
                           int32_t place) {
  const int lane = threadIdx.x % 32;
  for (int32_t step = share.first(); step < share.stop(); step += 32) {
    int32_t id = 0;
    const uint32_t bits = share.Test(step, &id);
    const int32_t own = __popc(bits);
    int32_t sum = own;
    for (int k = 1; k < 32; k *= 2) {
      const int32_t left = __shfl_up_sync(~0u, sum, k);
      if (lane >= k) sum += left;
    }
    const int32_t all = __shfl_sync(~0u, sum, 31);
    if (all != 0) StripStore::Store(list, ids, bits, place + sum - own, id);
    place += all;
  }
}

// -1 behind the entries: the warps of a list in all blocks take turns of 32 x 4 places.
__device__ void FillTail(const StripList& list, int32_t* ids, int32_t total, int32_t rank,
                         int32_t blocks) {
  const int64_t part = static_cast<int64_t>(threadIdx.x / 32) - list.first_warp;
  const int64_t thread = (rank * int64_t{list.warps} + part) * 32 + threadIdx.x % 32;
  const int64_t threads = int64_t{blocks} * list.warps * 32;
  const int64_t skew = (16 - reinterpret_cast<uintptr_t>(ids) % 16) % 16 / 4;
  const int64_t first = min(int64_t{total}, list.capacity);
  // Places first .. begin and end .. capacity one by one, quads between them.
  const int64_t begin = min((first - skew + 3) / 4 * 4 + skew, list.capacity);
  const int64_t end = max(begin, (list.capacity - skew) / 4 * 4 + min(skew, begin));
  for (int64_t i = first + thread; i < begin; i += threads) ids[i] = -1;
  for (int64_t i = begin + 4 * thread; i < end; i += 4 * threads) {
    *reinterpret_cast<int4*>(ids + i) = make_int4(-1, -1, -1, -1);
  }
  for (int64_t i = end + thread; i < list.capacity; i += threads) ids[i] = -1;
}

// The first variant of the least cost; one whose list overflowed costs infinity. One warp does it.
__device__ void Choose(const StripArgs& args, int64_t list) {
  const Sums& sums = Sums::Shared();
  const int lane = threadIdx.x % 32;
  float best = INFINITY;
  int32_t choice = INT32_MAX;
  for (int32_t v = lane; v < args.variants; v += 32) {
    const float* row = args.costs + kCostColumns * (list * args.variants + v);
    const float named = row[2];
    float cost = row[0];
    for (int t = 0; t < args.sizes; ++t) {
      if (named != static_cast<float>(t)) continue;
      cost = sums.total[t] > args.list[t].capacity ? INFINITY : VariantCost(row, sums.total[t]);
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
  extern __shared__ uint32_t resident[];
  const Team team(args.scratch);
  Sums& sums = Sums::Shared();
  const int t = ListOfWarp(args), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const StripList& list = args.list[t];
  const bool leads = warp == list.first_warp;
  for (int64_t mask = team.first_list(); mask < args.lists; mask += team.list_stride()) {
    const StripWords words(args, mask, team.rank(), resident);
    const WarpShare share(args, words, list);
    words.Pack();
    __syncthreads();
    const int32_t mine = CountTiles(share);
    if (lane == 0) sums.warp[warp] = mine;
    __syncthreads();
    const BlockPlace place(list);
    if (leads && lane == 0) team.Publish(mask, t, place.all);
    team.Wait();
    if (leads) AddBlocks(team, mask, t);
    __syncthreads();
    const int32_t total = sums.total[t];
    int32_t* ids = list.ids + mask * list.capacity;
    if (leads && lane == 0 && team.rank() == 0) {
      args.count[mask * args.sizes + t] = total;
      args.overflow[mask * args.sizes + t] = total > list.capacity;
    }
    const bool chooses = team.rank() == team.blocks() - 1 && warp == kWarps - 1;
    if (chooses && args.choice != nullptr) Choose(args, mask);
    StoreTiles(share, list, ids, sums.before[t] + place.before);
    FillTail(list, ids, total, team.rank(), team.blocks());
    team.Finish();
  }
}

// Shared memory for the words of a block.
int64_t ResidentBytes(const StripArgs& args) {
  return (int64_t{args.per_block} << args.strip_log2) * args.chunk * 4;
}

// Gives every list a share of a block's warps by what it has to do: a tile row costs the test of a
// word and a store for every tile in it.
void ShareWarps(StripArgs* args) {
  constexpr int kTest = 25;  // in stores
  int cost[kMaxPortfolio], left = kWarps - args->sizes;
  for (int t = 0; t < args->sizes; ++t) {
    const StripList& list = args->list[t];
    cost[t] = (kTest + (32 >> list.tw_log2)) << (args->strip_log2 - list.th_log2);
    args->list[t].warps = 1;
  }
  for (; left > 0; --left) {
    int most = 0;
    for (int t = 1; t < args->sizes; ++t) {
      const int64_t ours = int64_t{cost[t]} * args->list[most].warps;
      if (ours > int64_t{cost[most]} * args->list[t].warps) most = t;
    }
    ++args->list[most].warps;
  }
  for (int t = 1; t < args->sizes; ++t) {
    args->list[t].first_warp = args->list[t - 1].first_warp + args->list[t - 1].warps;
  }
  for (int t = 0; t < args->sizes; ++t) {
    for (int w = 0; w < args->list[t].warps; ++w) {
      const int warp = args->list[t].first_warp + w;
      args->list_of_warp[warp / 16] |= static_cast<uint64_t>(t) << (4 * (warp % 16));
    }
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
                   0,
                   0,
                   starts,
                   list.capacity,
                   list.ids};
    out.strip_log2 = std::max(out.strip_log2, list.th_log2);
  }
  ShareWarps(&out);
  const int64_t strip = int64_t{1} << out.strip_log2;
  out.strips = static_cast<int32_t>(std::max<int64_t>((args.height + strip - 1) / strip, 1));
  const int64_t lines = args.images * out.strips;  // of segments
  const int64_t wanted =
      4 * lines >= 3 * int64_t{blocks} || lines == 0 ? 1 : (2 * blocks + lines - 1) / lines;
  const int64_t words = std::max(out.row_words, 1);
  out.chunk = static_cast<int32_t>((words + wanted - 1) / wanted);
  out.chunks = static_cast<int32_t>((words + out.chunk - 1) / out.chunk);
  out.by_chunk = Division(static_cast<uint32_t>(out.chunk));
  out.by_chunks = Division(static_cast<uint32_t>(out.chunks));
  out.by_strips = Division(static_cast<uint32_t>(out.strips));
  const bool empty = args.height == 0 || args.width == 0;
  out.segments = empty ? 0 : static_cast<int32_t>(lines * out.chunks);
  out.per_block = std::max((out.segments + blocks - 1) / blocks, 1);
  out.resident = ResidentBytes(out) <= kResidentBytes;
  out.costs = args.costs;
  out.count = args.count;
  out.overflow = args.overflow;
  out.choice = args.choice;
  out.scratch = args.scratch;
  return out;
}

// The largest cluster of the device: 1 where there are none.
cudaError_t LargestCluster(int device, int* largest) {
  int major = 0;
  const cudaError_t status =
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  *largest = major < 9 ? 1 : kLargestCluster;
  return status;
}

// Lets both kernels hold kResidentBytes of words; once per device.
cudaError_t RaiseSharedLimit() {
  static std::array<std::atomic<bool>, 64> raised{};
  int device = 0;
  cudaError_t status = cudaGetDevice(&device);
  const bool known = device < static_cast<int>(raised.size());
  if (status != cudaSuccess || (known && raised[device].load())) return status;
  for (const void* kernel : {reinterpret_cast<const void*>(BuildLists<ClusterTeam>),
                             reinterpret_cast<const void*>(BuildLists<GridTeam>)}) {
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(kResidentBytes));
    if (status != cudaSuccess) return status;
  }
  if (known) raised[device].store(true);
  return cudaSuccess;
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
  while (blocks < kLargestCluster && blocks * kBytesPerBlock < bytes) blocks *= 2;
  *team = {true, std::min(blocks, largest)};
  const bool masks_fill_device = args.lists * team->blocks >= 2 * processors;
  if (bytes > kClusterBytes * team->blocks / kLargestCluster && !masks_fill_device) {
    const int64_t wanted = std::max<int64_t>(bytes / kBytesPerBlock, kSmallestGrid);
    *team = {false, static_cast<int32_t>(std::min<int64_t>({wanted, processors, kMaxTeamBlocks}))};
  }
  return cudaSuccess;
}

cudaError_t PortfolioIndex(const PortfolioArgs& args, PortfolioTeam team, cudaStream_t stream) {
  if (args.sizes < 1) return cudaErrorInvalidValue;
  if (args.lists == 0) return cudaSuccess;
  StripArgs strips = ToStrips(args, team.blocks);
  const cudaError_t status = RaiseSharedLimit();
  if (status != cudaSuccess) return status;
  cudaLaunchAttribute attribute{};
  cudaLaunchConfig_t config{};
  config.blockDim = kThreads;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  config.dynamicSmemBytes = strips.resident ? static_cast<size_t>(ResidentBytes(strips)) : 0;
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
