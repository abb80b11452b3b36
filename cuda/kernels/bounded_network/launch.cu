// The launches of a whole stack: the first layer or the turned images, then layers through memory
// or resident ones.
//
// A row lives 3.5 layers on average on the challenge's inputs and at most 28, so a tile that kept
// its rows to the end would compute mostly decided ones. Resident tiles are regrouped after a few
// fixed layers: a launch (1-2 us) and one trip of the undecided rows through memory. Through
// memory, every layer regroups. The launches depend on shapes and attributes alone.
#include "cuda/kernels/bounded_network/launch.h"

#include <algorithm>
#include <initializer_list>

#include "cuda/kernels/bounded_network/first.cuh"
#include "cuda/kernels/bounded_network/panel.cuh"
#include "cuda/kernels/bounded_network/resident.cuh"
#include "cuda/kernels/bounded_network/wide.cuh"

namespace jaxsparse {
namespace {

constexpr int kRegroup[] = {2, 3, 4, 5, 7, 9, 11, 13, 16, 21, 27, 33};
constexpr int kCounters = 32;
// Layers through memory before tiles go on by themselves: wide ones, and those that get resident.
constexpr int64_t kTailBegins = 34, kResidentBegins = 12;
constexpr int64_t kStaticShared = 1 << 10;  // of a CTA, beside its tile

constexpr int64_t kPanelShared =
    std::max(PanelFromRows::Shape::kShared, PanelFromState::Shape::kShared);

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t TilesOf(int64_t batch) { return CeilDiv(batch, kTileSlots); }
int64_t BlocksOf(int64_t batch) { return TilesOf(batch) * kTileBlocks; }

// The workspace: counters, then two generations.
struct Workspace {
  uint32_t* counters;  // [2][kCounters]: slots in use and tiles taken, of each launch
  uint32_t* slots;     // [3]: slots in use of a launch through memory, of those after it
  BlockVerdicts verdicts;
  int32_t* source;
  int32_t* rows[2];
  float* state[2];
  PanelPlan* plans;  // [PlannedLayers][PanelGroups(widest)]
};

int64_t PlannedLayers(int64_t depth, bool panels) {
  return panels ? std::min<int64_t>(depth, kPanelLayers) : 0;
}

Workspace Carve(const BoundedNetworkArgs& args) {
  char* next = static_cast<char*>(args.scratch);
  const auto take = [&next](int64_t bytes) {
    char* const piece = next;
    next += CeilDiv(bytes, 128) * 128;
    return piece;
  };
  const int64_t blocks = BlocksOf(args.batch), slots = blocks * kSlots;
  Workspace space;
  space.counters = reinterpret_cast<uint32_t*>(take(2 * kCounters * 4));
  space.slots = reinterpret_cast<uint32_t*>(take(3 * 4));
  space.verdicts.not_zero = reinterpret_cast<uint32_t*>(take(4 * blocks));
  space.verdicts.not_upper = reinterpret_cast<uint32_t*>(take(4 * blocks));
  space.source = reinterpret_cast<int32_t*>(take(4 * slots));
  for (int i = 0; i < 2; ++i) space.rows[i] = reinterpret_cast<int32_t*>(take(4 * slots));
  for (int i = 0; i < 2; ++i)
    space.state[i] = reinterpret_cast<float*>(take(4 * slots * args.widest));
  space.plans = reinterpret_cast<PanelPlan*>(take(0));
  return space;
}

// Every image has a slot, and nothing is known of any.
__global__ void __launch_bounds__(kWideThreads) BeginStack(Workspace space, uint32_t batch) {
  const uint32_t slot = blockIdx.x * kWideThreads + threadIdx.x;
  if (slot < 2 * kCounters) space.counters[slot] = slot == 0 ? batch : 0;
  if (slot < 3) space.slots[slot] = slot == 0 ? batch : 0;
  if (slot >= batch) return;
  space.rows[0][slot] = space.source[slot] = static_cast<int32_t>(slot);
  if (slot % kSlots != 0) return;
  space.verdicts.not_zero[slot / kSlots] = space.verdicts.not_upper[slot / kSlots] = 0;
}

// Behind which layer the next regrouping comes.
int64_t NextStop(const BoundedNetworkArgs& args, int64_t first) {
  for (const int stop : kRegroup) {
    if (args.regroup && stop > first && stop < args.depth) return stop;
  }
  return args.depth;
}

StackView ViewOf(const BoundedNetworkArgs& args) {
  return {args.table,
          args.starts,
          args.indices,
          args.weights,
          args.bias,
          args.uppers,
          args.expand,
          args.out,
          args.codes,
          args.starts_size,
          args.entries,
          args.weighed,
          args.bias_size,
          args.n_out,
          static_cast<uint32_t>(args.n_in),
          static_cast<uint32_t>(args.widest),
          static_cast<uint32_t>(args.depth),
          args.bundles};
}

// What the device has: multiprocessors, and shared memory that a CTA may take.
struct Device {
  int sms = 0, shared = 0;
};

cudaError_t Query(Device* device) {
  int id = 0;
  cudaError_t error = cudaGetDevice(&id);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&device->sms, cudaDevAttrMultiProcessorCount, id);
  }
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&device->shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, id);
  }
  device->shared -= kStaticShared;
  return error;
}

int64_t SharedBytes(int64_t widest, int images) { return 2 * widest * images * 4; }

// Images of a resident tile: as many as fit, and fewer where that leaves multiprocessors idle. 0:
// too wide.
int TileImages(const BoundedNetworkArgs& args, const Device& device) {
  const int least = args.bundles ? 8 : 4;
  int images = args.bundles ? 16 : 32;
  while (images >= least && SharedBytes(args.widest, images) > device.shared) images /= 2;
  if (images < least) return 0;
  while (images > least && CeilDiv(args.batch, images) < device.sms) images /= 2;
  return images;
}

// The state that the next launch reads: turned images, or the result of layer 0.
template <bool kBundles, typename Index>
void LaunchFirst(const BoundedNetworkArgs& args, const Workspace& space, cudaStream_t stream) {
  const uint32_t batch = static_cast<uint32_t>(args.batch), n_in = static_cast<uint32_t>(args.n_in);
  if (args.rows) return;
  if (kBundles) {
    const int64_t chunks = std::max<int64_t>(CeilDiv(n_in, 128), 1);
    TurnImages<<<chunks * CeilDiv(args.batch, kSlots), kFirstThreads, 0, stream>>>(
        ViewOf(args), args.x, batch, n_in, space.state[0]);
    return;
  }
  const int64_t threads = CeilDiv(args.first, 32) * 32 * CeilDiv(args.batch, kFirstImages);
  FirstLayer<Index>
      <<<CeilDiv(std::max<int64_t>(threads, 1), kFirstThreads), kFirstThreads, 0, stream>>>(
          ViewOf(args), args.x, batch, n_in, static_cast<uint32_t>(args.first), space.state[0]);
}

// What the launches so far have left: layers behind, slots in use, and which of the two lists of
// rows and of the two states hold them.
struct Progress {
  int64_t layer;
  uint32_t* count;
  int rows, state;
};

template <int kImages, bool kBundles, typename Index>
cudaError_t LaunchResident(const BoundedNetworkArgs& args, const Workspace& space,
                           const Device& device, const Progress& begin, cudaStream_t stream) {
  const int64_t shared = SharedBytes(args.widest, kImages);
  const int64_t items = args.widest * kImages / (kBundles ? 4 * kPart : 4);
  int threads = 128;
  while (threads < ResidentThreads(kBundles) && threads * (kBundles ? 1 : 4) < items) threads *= 2;
  const int64_t fit =
      std::min<int64_t>(2048 / threads, device.shared / (shared + 2 * kStaticShared));
  const int64_t tiles = CeilDiv(args.batch, kImages);
  const int64_t grid =
      std::max<int64_t>(std::min(std::max<int64_t>(fit, 1) * device.sms, tiles), 1);
  Generation from = {space.state[begin.state], space.rows[begin.rows], begin.count,
                     space.counters + kCounters};
  int number = 1;
  for (int64_t first = begin.layer; first < args.depth; ++number) {
    const int64_t last = NextStop(args, first);
    const Generation to = {space.state[(begin.state + number) % 2],
                           space.rows[(begin.rows + number) % 2], space.counters + number,
                           space.counters + kCounters + number};
    ResidentLayers<kImages, kBundles, Index><<<grid, threads, shared, stream>>>(
        ViewOf(args), from, to, static_cast<uint32_t>(first), static_cast<uint32_t>(last));
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
    first = last;
    from = to;
  }
  return cudaSuccess;
}

// One layer by panels.
void LaunchPanel(const BoundedNetworkArgs& args, const Workspace& space, const Device& device,
                 const Progress& at, uint32_t* next, cudaStream_t stream) {
  const auto kernel = at.layer > 0 ? PanelLayer<false, false>
                      : args.rows  ? PanelLayer<true, true>
                                   : PanelLayer<true, false>;
  const uint32_t groups = PanelGroups(static_cast<uint32_t>(args.widest));
  const int64_t shared =
      args.rows && at.layer == 0 ? PanelFromRows::Shape::kShared : PanelFromState::Shape::kShared;
  kernel<<<device.sms, kPanelThreads, shared, stream>>>(
      ViewOf(args), space.plans + at.layer * groups, args.x, static_cast<uint32_t>(args.batch),
      static_cast<uint32_t>(args.n_in), space.state[at.state], space.source,
      space.state[1 - at.state], space.verdicts, at.count, next, static_cast<uint32_t>(at.layer));
}

// Layers up to `stop` through memory. The last one's words are there, and nothing of it is settled.
template <bool kBundles, typename Index>
cudaError_t LaunchWide(const BoundedNetworkArgs& args, const Workspace& space, const Device& device,
                       int64_t stop, Progress* progress, cudaStream_t stream) {
  const StackView stack = ViewOf(args);
  const int64_t tiles = TilesOf(args.batch), blocks = BlocksOf(args.batch);
  const int64_t chunks = CeilDiv(CeilDiv(args.widest, kBundles ? kBundle : 1), kWideWarps);
  if (chunks * tiles > INT32_MAX) return cudaErrorInvalidConfiguration;
  const int64_t grid = std::min<int64_t>(chunks * tiles, kWideResident * device.sms);
  const int64_t planned = std::min(PlannedLayers(args.depth, args.panels), stop);
  if (planned > 0) {
    const uint32_t groups = PanelGroups(static_cast<uint32_t>(args.widest));
    PlanPanels<Index><<<planned * groups, kPanelThreads, 0, stream>>>(stack, groups, space.plans);
  }
  for (int turn = 0; progress->layer < stop; ++turn) {
    uint32_t* const next = space.slots + (turn + 1) % 3;
    const uint32_t layer = static_cast<uint32_t>(progress->layer);
    if (progress->layer < planned) {
      LaunchPanel(args, space, device, *progress, next, stream);
    } else {
      WideLayer<kBundles, Index><<<grid, kWideThreads, kWideShared, stream>>>(
          stack, space.state[progress->state], space.source, space.state[1 - progress->state],
          space.verdicts, progress->count, next, layer);
    }
    progress->state = 1 - progress->state;
    if (++progress->layer < stop) {
      WideSettle<<<CeilDiv(blocks * kSlots, kWideThreads), kWideThreads, 0, stream>>>(
          stack, space.rows[progress->rows], space.rows[1 - progress->rows], space.source,
          space.verdicts, progress->count, next, layer);
      progress->rows = 1 - progress->rows;
      progress->count = next;
    }
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

template <bool kBundles, typename Index>
cudaError_t LaunchTail(const BoundedNetworkArgs& args, const Workspace& space,
                       const Progress& begin, cudaStream_t stream) {
  WideTail<kBundles, Index><<<TilesOf(args.batch), kWideThreads, kWideShared, stream>>>(
      ViewOf(args), space.rows[begin.rows], space.state[begin.state], space.state[1 - begin.state],
      space.verdicts, begin.count, static_cast<uint32_t>(begin.layer));
  return cudaGetLastError();
}

template <bool kBundles, typename Index>
cudaError_t Launch(const BoundedNetworkArgs& given, cudaStream_t stream) {
  Device device;
  if (const cudaError_t error = Query(&device); error != cudaSuccess) return error;
  const int images = TileImages(given, device);
  // Through memory where rows leave, tiles fill the device, and a tile of bundles keeps more
  // multiply-adds going than shared memory can; where a resident tile does not fit, always.
  const bool through =
      images == 0 || (kBundles && given.regroup && TilesOf(given.batch) >= device.sms);
  BoundedNetworkArgs args = given;
  const bool whole = PanelGroups(static_cast<uint32_t>(args.widest)) > 0;  // one bundle or more
  args.panels &= whole && device.shared >= kPanelShared;
  args.rows &= through && args.panels;
  const Workspace space = Carve(args);
  BeginStack<<<CeilDiv(std::max<int64_t>(args.batch, 2 * kCounters), kWideThreads), kWideThreads, 0,
               stream>>>(space, static_cast<uint32_t>(args.batch));
  LaunchFirst<kBundles, Index>(args, space, stream);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  Progress progress = {kBundles ? 0 : 1, space.slots, 0, 0};
  if (through) {
    const int64_t most = images == 0 ? kTailBegins : kResidentBegins;
    const int64_t stop = args.regroup ? std::min(args.depth, most) : args.depth;
    const cudaError_t error =
        LaunchWide<kBundles, Index>(args, space, device, stop, &progress, stream);
    if (error != cudaSuccess) return error;
    if (images == 0 || stop == args.depth) {
      return LaunchTail<kBundles, Index>(args, space, progress, stream);
    }
  }
  if (images == 8) return LaunchResident<8, kBundles, Index>(args, space, device, progress, stream);
  if (images == 16) {
    return LaunchResident<16, kBundles, Index>(args, space, device, progress, stream);
  }
  if constexpr (!kBundles) {
    if (images == 4) return LaunchResident<4, false, Index>(args, space, device, progress, stream);
    return LaunchResident<32, false, Index>(args, space, device, progress, stream);
  }
  return cudaErrorInvalidConfiguration;
}

template <typename Index>
cudaError_t Prepare() {
  Device device;
  if (const cudaError_t error = Query(&device); error != cudaSuccess) return error;
  for (const void* kernel : {reinterpret_cast<const void*>(ResidentLayers<32, false, Index>),
                             reinterpret_cast<const void*>(ResidentLayers<16, false, Index>),
                             reinterpret_cast<const void*>(ResidentLayers<8, false, Index>),
                             reinterpret_cast<const void*>(ResidentLayers<4, false, Index>),
                             reinterpret_cast<const void*>(ResidentLayers<16, true, Index>),
                             reinterpret_cast<const void*>(ResidentLayers<8, true, Index>)}) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, device.shared);
    if (error != cudaSuccess) return error;
  }
  for (const void* kernel : {reinterpret_cast<const void*>(WideLayer<true, Index>),
                             reinterpret_cast<const void*>(WideLayer<false, Index>),
                             reinterpret_cast<const void*>(WideTail<true, Index>),
                             reinterpret_cast<const void*>(WideTail<false, Index>)}) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kWideShared);
    if (error != cudaSuccess) return error;
  }
  if (device.shared < kPanelShared) return cudaSuccess;
  for (const void* kernel : {reinterpret_cast<const void*>(PanelLayer<true, true>),
                             reinterpret_cast<const void*>(PanelLayer<true, false>),
                             reinterpret_cast<const void*>(PanelLayer<false, false>)}) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kPanelShared);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

int64_t BoundedNetworkScratch(int64_t batch, int64_t widest, int64_t depth, bool panels) {
  const int64_t blocks = BlocksOf(batch);
  const int64_t plans =
      PlannedLayers(depth, panels) * PanelGroups(static_cast<uint32_t>(widest)) * sizeof(PanelPlan);
  return 2 * kCounters * 4 + 12 + 8 * blocks + 4 * blocks * kSlots * (2 * widest + 3) + 9 * 128 +
         plans;
}

cudaError_t PrepareBoundedNetwork() {
  const cudaError_t error = Prepare<uint16_t>();
  return error != cudaSuccess ? error : Prepare<int32_t>();
}

cudaError_t LaunchBoundedNetwork(const BoundedNetworkArgs& args, cudaStream_t stream) {
  if (args.bundles) {
    return args.wide ? Launch<true, int32_t>(args, stream) : Launch<true, uint16_t>(args, stream);
  }
  return args.wide ? Launch<false, int32_t>(args, stream) : Launch<false, uint16_t>(args, stream);
}

}  // namespace jaxsparse
