// The launches of a whole stack: the first layer from memory, then resident layers between
// regroupings.
//
// A row lives 3.5 layers on average on the challenge's inputs and at most 28, so a tile that kept
// its rows to the end would compute mostly decided ones. Regrouping after a few fixed layers costs
// a launch (1-2 us) and one trip of the undecided rows through memory, and keeps every tile full.
// The launches depend on shapes and attributes alone.
#include "cuda/kernels/bounded_network.h"

#include <algorithm>
#include <initializer_list>

#include "cuda/kernels/bounded_first.cuh"
#include "cuda/kernels/bounded_resident.cuh"
#include "cuda/kernels/bounded_wide.cuh"

namespace jaxsparse {
namespace {

constexpr int kRegroup[] = {2, 3, 4, 5, 7, 9, 11, 13, 16, 21, 27, 33};
constexpr int kCounters = 32;
constexpr int64_t kStaticShared = 1 << 10;  // of a CTA, beside its tile

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t BlocksOf(int64_t batch) { return CeilDiv(batch, kSlots); }

// The workspace: counters, then two generations.
struct Workspace {
  uint32_t* counters;  // [2][kCounters]: slots in use and tiles taken, of each launch
  BlockVerdicts verdicts;
  int32_t* rows[2];
  float* state[2];
};

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
  space.verdicts.alive = reinterpret_cast<uint32_t*>(take(4 * blocks));
  space.verdicts.not_zero = reinterpret_cast<uint32_t*>(take(4 * blocks));
  space.verdicts.not_upper = reinterpret_cast<uint32_t*>(take(4 * blocks));
  space.verdicts.base = reinterpret_cast<uint32_t*>(take(4 * blocks));
  for (int i = 0; i < 2; ++i) space.rows[i] = reinterpret_cast<int32_t*>(take(4 * slots));
  for (int i = 0; i < 2; ++i)
    space.state[i] = reinterpret_cast<float*>(take(4 * slots * args.widest));
  return space;
}

__global__ void ResetCounters(uint32_t* counters, uint32_t batch) {
  if (threadIdx.x < 2 * kCounters) counters[threadIdx.x] = threadIdx.x == 0 ? batch : 0;
}

// `number` counts regroupings; `state` is where the rows' values are.
Generation GenerationOf(const Workspace& space, int number, int state) {
  return {space.state[state % 2], space.rows[number % 2], space.counters + number,
          space.counters + kCounters + number};
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
          args.entries,
          args.weighed,
          args.n_out,
          static_cast<uint32_t>(args.widest),
          static_cast<uint32_t>(args.depth)};
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

// Turned images are what layer 0 reads, in the second generation; otherwise its result is in the
// first.
template <bool kBundles, typename Index>
void LaunchFirst(const BoundedNetworkArgs& args, const Workspace& space, cudaStream_t stream) {
  const uint32_t batch = static_cast<uint32_t>(args.batch), n_in = static_cast<uint32_t>(args.n_in);
  if (kBundles) {
    const int64_t chunks = std::max<int64_t>(CeilDiv(n_in, 128), 1);
    TurnImages<<<chunks * BlocksOf(batch), kFirstThreads, 0, stream>>>(
        ViewOf(args), args.x, batch, n_in, GenerationOf(space, 0, 1));
    return;
  }
  const int64_t threads = CeilDiv(args.first, 32) * 32 * CeilDiv(args.batch, kFirstImages);
  FirstLayer<Index>
      <<<CeilDiv(std::max<int64_t>(threads, 1), kFirstThreads), kFirstThreads, 0, stream>>>(
          ViewOf(args), args.x, batch, n_in, static_cast<uint32_t>(args.first),
          GenerationOf(space, 0, 0));
}

template <int kImages, bool kBundles, typename Index>
cudaError_t LaunchResident(const BoundedNetworkArgs& args, const Workspace& space,
                           const Device& device, cudaStream_t stream) {
  const int64_t shared = SharedBytes(args.widest, kImages);
  const int64_t items = args.widest * kImages / (kBundles ? 4 * kPart : 4);
  int threads = 128;
  while (threads < ResidentThreads(kBundles) && threads * (kBundles ? 1 : 4) < items) threads *= 2;
  const int64_t fit =
      std::min<int64_t>(2048 / threads, device.shared / (shared + 2 * kStaticShared));
  const int64_t tiles = CeilDiv(args.batch, kImages);
  const int64_t grid =
      std::max<int64_t>(std::min(std::max<int64_t>(fit, 1) * device.sms, tiles), 1);
  int number = 0;
  for (int64_t first = kBundles ? 0 : 1; first < args.depth; ++number) {
    const int64_t last = NextStop(args, first);
    const int state = number + (kBundles ? 1 : 0);
    ResidentLayers<kImages, kBundles, Index><<<grid, threads, shared, stream>>>(
        ViewOf(args), GenerationOf(space, number, state),
        GenerationOf(space, number + 1, state + 1), static_cast<uint32_t>(first),
        static_cast<uint32_t>(last));
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
    first = last;
  }
  return cudaSuccess;
}

template <bool kBundles, typename Index>
cudaError_t LaunchWide(const BoundedNetworkArgs& args, const Workspace& space, const Device& device,
                       cudaStream_t stream) {
  const StackView stack = ViewOf(args);
  const int64_t blocks = BlocksOf(args.batch);
  const int64_t chunks = CeilDiv(args.widest, (kBundles ? kPart : 1) * kWideUnits);
  const int64_t per_slot = CeilDiv(blocks * kSlots, kWideThreads);
  if (chunks * blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  const auto reset = [&](int number) {
    WideReset<<<CeilDiv(blocks, kWideThreads), kWideThreads, 0, stream>>>(
        space.counters + number, space.verdicts, static_cast<uint32_t>(blocks));
  };
  reset(0);
  int number = 0, state = kBundles ? 1 : 0;
  uint32_t layer = kBundles ? 0 : 1;
  for (int64_t stop = NextStop(args, layer); layer < args.depth; ++layer) {
    // The last of the regroupings is behind, and rows may retire: each block goes on by itself.
    if (args.regroup && stop == args.depth) break;
    const int64_t grid = std::min<int64_t>(chunks * blocks, WideResident(kBundles) * device.sms);
    WideLayer<kBundles, Index><<<grid, kWideThreads, 0, stream>>>(
        stack, space.state[state % 2], space.state[(state + 1) % 2], space.verdicts,
        space.counters + number, layer, static_cast<uint32_t>(chunks));
    ++state;
    const bool regroup = layer + 1 == stop && stop < args.depth;
    const Generation from = GenerationOf(space, number, state);
    const Generation to = regroup ? GenerationOf(space, number + 1, state + 1) : Generation{};
    WideSettle<<<per_slot, kWideThreads, 0, stream>>>(stack, from, to, space.verdicts, layer);
    if (regroup) {
      const int64_t most = CeilDiv(args.widest, 4) * blocks / (kWideThreads / 32) + 1;
      WideCompact<<<std::min<int64_t>(most, 8 * device.sms), kWideThreads, 0, stream>>>(
          stack, from, to, space.verdicts, layer);
      ++number, ++state;
      reset(number);
      stop = NextStop(args, stop);
    }
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  WideTail<kBundles, Index>
      <<<blocks, kWideThreads, 0, stream>>>(stack, space.rows[number % 2], space.state[state % 2],
                                            space.state[(state + 1) % 2], space.verdicts, layer);
  return cudaGetLastError();
}

template <bool kBundles, typename Index>
cudaError_t Launch(const BoundedNetworkArgs& args, cudaStream_t stream) {
  const Workspace space = Carve(args);
  ResetCounters<<<1, 2 * kCounters, 0, stream>>>(space.counters, static_cast<uint32_t>(args.batch));
  LaunchFirst<kBundles, Index>(args, space, stream);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  Device device;
  if (const cudaError_t error = Query(&device); error != cudaSuccess) return error;
  const int images = TileImages(args, device);
  if (images == 0) return LaunchWide<kBundles, Index>(args, space, device, stream);
  if (images == 8) return LaunchResident<8, kBundles, Index>(args, space, device, stream);
  if (images == 16) return LaunchResident<16, kBundles, Index>(args, space, device, stream);
  if constexpr (!kBundles) {
    if (images == 4) return LaunchResident<4, false, Index>(args, space, device, stream);
    return LaunchResident<32, false, Index>(args, space, device, stream);
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
  return cudaSuccess;
}

}  // namespace

int64_t BoundedNetworkScratch(int64_t batch, int64_t widest) {
  const int64_t blocks = BlocksOf(batch);
  return 2 * kCounters * 4 + 16 * blocks + 8 * blocks * kSlots * (widest + 1) + 9 * 128;
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
