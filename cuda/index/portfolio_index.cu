// From the bytes of a mask to its words, the lists of its active tiles for several tile sizes,
// their counts, and the cheapest of several variants: one launch, each byte read once.
//
// Floor: a mask byte read, 1/8 written as words, 4 bytes written per list entry. 1 M pixels with
// 4x4 tiles move 1.4 MB, 0.3 us at 4.3 TB/s; 4 M pixels with seven sizes 25 MB, 6 us. Under 64 K
// tiles what counts is one chain: launch, load, wait for all blocks, store; and the instructions
// of warps that have little to do, which is why no block is larger than its work.
//
// Tile: a block owns strips of the mask as words in shared memory; each list has warps of its own,
// a lane per word of a tile row. Places follow from sums: no atomic addition, and every run of the
// kernel gives the same lists. One list alone ascends.
//
// Pipeline: load and pack; count; publish a block's sums and wait once for the team; store entries,
// then -1 behind the last. A team is one block, a cluster of up to 16 (its barrier takes 0.3 us),
// or a cooperative launch (1 us). None needs memory that is zero.
//
// Predicted 2-3 us until bytes count. Measured on an H200 in a graph: 2.6 us for 16 K pixels, 4.6
// for 1 M pixels and 64 K tiles, 11 for 4 M pixels of 1x1, 14.6 with seven sizes, where it is the
// instructions of tests and stores that count. More: docs/kernels/tile_index.md.
#include "cuda/index/portfolio_index.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "cuda/core/device.h"
#include "cuda/index/build_lists.cuh"
#include "cuda/index/reach.cuh"
#include "cuda/index/strips.cuh"
#include "cuda/index/team.cuh"

namespace jaxsparse {
namespace {

// Where the words of a mask come from.
struct FromBytes {
  __device__ static void Pack(const StripArgs&, int64_t /*mask*/, const StripWords& words) {
    words.PackBytes();
  }
};
struct FromReach {
  __device__ static void Pack(const StripArgs& args, int64_t mask, const StripWords& words) {
    const ReachWords reach(args, mask);
    words.Pack<1>([&](int32_t row, int32_t w) { return reach.Load(row, w); });
  }
};

// The lists of `args`, a mask after another where a team has several.
template <class Team, class Source>
__global__ void __launch_bounds__(kMaxIndexWarps * 32, 1)
    BuildLists(const __grid_constant__ StripArgs args) {
  extern __shared__ int32_t entries[];  // of each warp; then the block's words
  __shared__ int32_t totals[kMaxPortfolio];
  const Team team(args);
  const int t = ListOfWarp(args), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const StripList list = args.list[t];  // in registers
  const StripStore store(entries + warp * StripStore::kEntries);
  uint32_t* resident =
      reinterpret_cast<uint32_t*>(entries + blockDim.x / 32 * StripStore::kEntries);
  const bool choice_here = args.choice != nullptr && team.rank() == args.blocks - 1;
  const bool chooses = choice_here && warp == static_cast<int>(blockDim.x / 32) - 1;
  for (int64_t mask = team.first_mask(); mask < args.lists; mask += team.mask_stride()) {
    const StripWords words(args, mask, team.rank(), resident);
    const WarpShare share(args, words, list);
    CostRow row;
    if (chooses && args.variants > 0) row = CostRow(args, mask, 0);
    Source::Pack(args, mask, words);
    __syncthreads();
    StripTiles first;
    const int32_t mine = CountShare(share, &first);
    const WarpPlace place = FindPlace(args, team, mask, t, mine);
    if (warp == list.first_warp && lane == 0 && team.rank() == 0) {
      args.list[t].count[mask] = place.total;
      args.list[t].overflow[mask] = static_cast<uint32_t>(place.total) > list.capacity;
    }
    if (choice_here) {
      if (warp == list.first_warp && lane == 0) totals[t] = place.total;
      __syncthreads();
      if (chooses) Choose(args, mask, lane < args.sizes ? totals[lane] : 0, row);
    }
    int32_t* ids = list.ids + mask * list.capacity;
    StoreShare(share, store, list, ids, first, place.before);
    FillTail(list, ids, place.total, team.rank(), args.blocks);
    if (mask + team.mask_stride() < args.lists) team.Next();
  }
}

// Dynamic shared memory of a block's warps, and the most for its words.
constexpr int64_t kWarpBytes = StripStore::kEntries * sizeof(int32_t);
constexpr int64_t kMostWordBytes = 64 << 10;
constexpr int kStaticBytes = 2 << 10;  // at least what the kernels have besides

using Kernel = void (*)(StripArgs);

// The kernels of a team, for a mask as bytes and for what a mask reaches.
template <class Team>
constexpr Kernel kKernels[] = {BuildLists<Team, FromBytes>, BuildLists<Team, FromReach>};

// What a device can hold.
struct DeviceLimits {
  int processors = 0;  // 0: not asked yet
  int cluster = 1;     // the largest, in blocks
  int shared = 0;      // the dynamic shared memory that the kernels may have
};

constexpr int kClusterThreads = 512;

// Asks the current device, having raised the kernels' limits there.
cudaError_t AskDevice(int device, DeviceLimits* limits) {
  int capability = 0, processors = 0, shared = 0;
  cudaError_t status = ComputeCapability(&capability);
  if (status != cudaSuccess) return status;
  status = cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (status != cudaSuccess) return status;
  limits->shared = static_cast<int>(
      std::min<int64_t>(shared - kStaticBytes, kMaxIndexWarps * kWarpBytes + kMostWordBytes));
  for (const auto& kernels : {kKernels<SoloTeam>, kKernels<ClusterTeam>, kKernels<GridTeam>}) {
    for (const int source : {0, 1}) {
      status = cudaFuncSetAttribute(kernels[source], cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    limits->shared);
      if (status != cudaSuccess) return status;
    }
  }
  status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (status != cudaSuccess) return status;
  if (capability >= 90) {
    limits->cluster = 8;  // every such device has that
    for (const Kernel kernel : kKernels<ClusterTeam>) {
      status = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
      if (status != cudaSuccess) return status;
    }
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {kLargestCluster, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = kLargestCluster;
    config.blockDim = kClusterThreads;
    config.dynamicSmemBytes = static_cast<size_t>(limits->shared);
    config.attrs = &attribute;
    config.numAttrs = 1;
    int clusters = 0;
    status = cudaOccupancyMaxActiveClusters(&clusters, kKernels<ClusterTeam>[0], &config);
    if (status == cudaSuccess && clusters > 0) limits->cluster = kLargestCluster;
    if (status != cudaSuccess) cudaGetLastError();
  }
  limits->processors = processors;
  return cudaSuccess;
}

// The limits of the current device.
cudaError_t FindLimits(DeviceLimits* limits) {
  static std::mutex* mutex = new std::mutex;
  static auto* known = new std::array<DeviceLimits, kMaxDevices>;
  int device = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  const std::lock_guard<std::mutex> lock(*mutex);
  if (device >= static_cast<int>(known->size())) return AskDevice(device, limits);
  DeviceLimits& mine = (*known)[device];
  if (mine.processors == 0) status = AskDevice(device, &mine);
  *limits = mine;
  return status;
}

// The fastest on an H200 (docs/kernels/tile_index.md). The work of a mask is the bytes of it and
// its lists: a small one takes few warps, for each costs its instructions, whatever it finds to do.
PortfolioTeam TeamFor(const PortfolioArgs& args, const DeviceLimits& limits) {
  constexpr int64_t kKilo = 1 << 10, kMega = 1 << 20;
  const bool single = args.sizes == 1;
  int64_t work = args.images * args.height * args.width;
  for (int32_t t = 0; t < args.sizes; ++t) work += 4 * args.list[t].capacity;
  if (single && work <= 24 * kKilo) return {true, 1, 256};
  const bool few = work <= (single ? 64 : 128) * kKilo;
  const int32_t cluster = std::min(few ? 8 : 16, limits.cluster);
  const bool masks_fill_device = args.lists * cluster >= limits.processors;
  if (work <= (single ? 400 : 128) * kKilo * cluster / 16 || (few && cluster > 1) ||
      masks_fill_device) {
    return {true, cluster, single ? 256 : 512};
  }
  const int32_t all = std::min(limits.processors, kMaxTeamBlocks);
  if (single)
    return {false, work <= 2 * kMega ? std::min(64, all) : all, work <= 8 * kMega ? 256 : 512};
  if (work <= kMega) return {false, std::min(64, all), 256};
  return {false, all, work <= 2 * kMega ? 384 : 512};
}

}  // namespace

cudaError_t PreparePortfolio() {
  DeviceLimits limits;
  return FindLimits(&limits);
}

cudaError_t PlanPortfolio(const PortfolioArgs& args, PortfolioTeam* team) {
  DeviceLimits limits;
  const cudaError_t status = FindLimits(&limits);
  if (status != cudaSuccess) return status;
  *team = TeamFor(args, limits);
  return cudaSuccess;
}

cudaError_t PortfolioIndex(const PortfolioArgs& args, PortfolioTeam team, cudaStream_t stream) {
  if (args.sizes < 1) return cudaErrorInvalidValue;
  if (args.lists == 0) return cudaSuccess;
  DeviceLimits limits;
  const cudaError_t status = FindLimits(&limits);
  if (status != cudaSuccess) return status;
  const int64_t warps = team.threads / 32;
  const int64_t room = std::min(limits.shared - warps * kWarpBytes, kMostWordBytes);
  const StripArgs strips = PlanStrips(args, team.blocks, static_cast<int32_t>(warps), room);
  const int reaches = args.reach.rows.stride > 0 ? 1 : 0;  // words of an empty mask are null
  cudaLaunchAttribute attribute{};
  cudaLaunchConfig_t config{};
  config.blockDim = static_cast<unsigned>(team.threads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  config.dynamicSmemBytes =
      static_cast<size_t>(warps * kWarpBytes + (strips.resident ? strips.block_bytes() : 0));
  if (!team.cluster) {
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    config.gridDim = static_cast<unsigned>(team.blocks);
    return cudaLaunchKernelEx(&config, kKernels<GridTeam>[reaches], strips);
  }
  const int64_t masks = std::min<int64_t>(args.lists, (int64_t{1} << 30) / team.blocks);
  config.gridDim = static_cast<unsigned>(masks * team.blocks);
  if (team.blocks == 1) {
    config.numAttrs = 0;
    return cudaLaunchKernelEx(&config, kKernels<SoloTeam>[reaches], strips);
  }
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(team.blocks), 1, 1};
  return cudaLaunchKernelEx(&config, kKernels<ClusterTeam>[reaches], strips);
}

}  // namespace jaxsparse
