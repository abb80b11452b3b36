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

constexpr int kRegroup[] = {2, 3, 4, 5, 7, 9, 11, 13, 16, 21};
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
  for (int i = 0; i < 2; ++i) space.rows[i] = reinterpret_cast<int32_t*>(take(4 * slots));
  for (int i = 0; i < 2; ++i)
    space.state[i] = reinterpret_cast<float*>(take(4 * slots * args.widest));
  return space;
}

__global__ void ResetStack(uint32_t* counters, uint32_t batch, BlockVerdicts verdicts,
                           uint32_t blocks) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 2 * kCounters) counters[i] = i == 0 ? batch : 0;
  if (i >= blocks) return;
  const uint32_t left = batch - i * kSlots;
  verdicts.alive[i] = left >= kSlots ? ~0u : (1u << left) - 1;
  verdicts.not_zero[i] = verdicts.not_upper[i] = 0;
}

Generation GenerationOf(const Workspace& space, int launch) {
  return {space.state[launch % 2], space.rows[launch % 2], space.counters + launch,
          space.counters + kCounters + launch};
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
int TileImages(int64_t widest, int64_t batch, const Device& device) {
  int images = 32;
  while (images >= 4 && SharedBytes(widest, images) > device.shared) images /= 2;
  if (images < 4) return 0;
  while (images > 4 && CeilDiv(batch, images) < device.sms) images /= 2;
  return images;
}

template <typename Index>
void LaunchFirst(const BoundedNetworkArgs& args, const Workspace& space, cudaStream_t stream) {
  const int64_t threads = CeilDiv(args.first, 32) * 32 * CeilDiv(args.batch, kFirstImages);
  FirstLayer<Index>
      <<<CeilDiv(std::max<int64_t>(threads, 1), kFirstThreads), kFirstThreads, 0, stream>>>(
          ViewOf(args), args.x, static_cast<uint32_t>(args.batch), static_cast<uint32_t>(args.n_in),
          static_cast<uint32_t>(args.first), GenerationOf(space, 0));
}

template <int kImages, typename Index>
cudaError_t LaunchResident(const BoundedNetworkArgs& args, const Workspace& space,
                           const Device& device, cudaStream_t stream) {
  const int64_t shared = SharedBytes(args.widest, kImages);
  const int64_t items = args.widest * kImages / 4;
  int threads = 128;
  while (threads < 1024 && threads * 4 <= items) threads *= 2;
  const int64_t fit =
      std::min<int64_t>(2048 / threads, device.shared / (shared + 2 * kStaticShared));
  const int64_t tiles = CeilDiv(args.batch, kImages);
  const int64_t grid =
      std::max<int64_t>(std::min(std::max<int64_t>(fit, 1) * device.sms, tiles), 1);
  int launch = 0;
  for (int64_t first = 1; first < args.depth; ++launch) {
    int64_t last = args.depth;
    for (const int stop : kRegroup) {
      if (args.regroup && stop > first && stop < args.depth) {
        last = stop;
        break;
      }
    }
    ResidentLayers<kImages, Index><<<grid, threads, shared, stream>>>(
        ViewOf(args), GenerationOf(space, launch), GenerationOf(space, launch + 1),
        static_cast<uint32_t>(first), static_cast<uint32_t>(last));
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
    first = last;
  }
  return cudaSuccess;
}

template <typename Index>
cudaError_t LaunchWide(const BoundedNetworkArgs& args, const Workspace& space,
                       cudaStream_t stream) {
  const StackView stack = ViewOf(args);
  const int64_t blocks = BlocksOf(args.batch), octets = CeilDiv(args.batch, kOctet);
  const dim3 grid(octets, CeilDiv(args.widest, kWideThreads));
  for (uint32_t layer = 1; layer < args.depth; ++layer) {
    WideLayer<Index><<<grid, kWideThreads, 0, stream>>>(
        stack, space.state[(layer + 1) % 2], space.state[layer % 2], space.verdicts, layer);
    WideSettle<<<CeilDiv(blocks * kSlots, kWideThreads), kWideThreads, 0, stream>>>(
        stack, space.verdicts, static_cast<uint32_t>(blocks), layer);
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  WideWrite<<<blocks, kWideThreads, 0, stream>>>(stack, space.state[(args.depth + 1) % 2],
                                                 space.verdicts);
  return cudaGetLastError();
}

template <typename Index>
cudaError_t Launch(const BoundedNetworkArgs& args, cudaStream_t stream) {
  const Workspace space = Carve(args);
  const int64_t blocks = BlocksOf(args.batch);
  ResetStack<<<CeilDiv(std::max<int64_t>(blocks, 2 * kCounters), 256), 256, 0, stream>>>(
      space.counters, static_cast<uint32_t>(args.batch), space.verdicts,
      static_cast<uint32_t>(blocks));
  LaunchFirst<Index>(args, space, stream);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  Device device;
  if (const cudaError_t error = Query(&device); error != cudaSuccess) return error;
  switch (TileImages(args.widest, args.batch, device)) {
    case 32:
      return LaunchResident<32, Index>(args, space, device, stream);
    case 16:
      return LaunchResident<16, Index>(args, space, device, stream);
    case 8:
      return LaunchResident<8, Index>(args, space, device, stream);
    case 4:
      return LaunchResident<4, Index>(args, space, device, stream);
    default:
      return LaunchWide<Index>(args, space, stream);
  }
}

template <typename Index>
cudaError_t Prepare() {
  Device device;
  if (const cudaError_t error = Query(&device); error != cudaSuccess) return error;
  for (const void* kernel : {reinterpret_cast<const void*>(ResidentLayers<32, Index>),
                             reinterpret_cast<const void*>(ResidentLayers<16, Index>),
                             reinterpret_cast<const void*>(ResidentLayers<8, Index>),
                             reinterpret_cast<const void*>(ResidentLayers<4, Index>)}) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, device.shared);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

int64_t BoundedNetworkScratch(int64_t batch, int64_t widest) {
  const int64_t blocks = BlocksOf(batch);
  return 2 * kCounters * 4 + 12 * blocks + 8 * blocks * kSlots * (widest + 1) + 8 * 128;
}

cudaError_t PrepareBoundedNetwork() {
  const cudaError_t error = Prepare<uint16_t>();
  return error != cudaSuccess ? error : Prepare<int32_t>();
}

cudaError_t LaunchBoundedNetwork(const BoundedNetworkArgs& args, cudaStream_t stream) {
  return args.wide ? Launch<int32_t>(args, stream) : Launch<uint16_t>(args, stream);
}

}  // namespace jaxsparse
