// Masked product on Hopper's tensor cores: a tile of rows loads the slabs of K that some of its
// rows keep, and nothing else.
//
// Floor:    2 * kept entries * columns operations at 790 TFLOP/s (16 bit) or 414 (TF32); and, what
//           binds below half density, the rows of `b` that each tile of rows needs, out of L2: at
//           sparsity s and tiles of r pieces of 32 rows, (1 - s^r) of b for every 32*r rows. At
//           4096^3, 90 %, 16 bit: 407 MB for wide tiles, 370 MB for tall ones.
// Tile:     wide 64 x 512 (few slabs, each one used by few rows) or tall 128 x 256 (denser masks);
//           the device takes the one that costs less. K in slabs of 128 bytes; half a tall tile
//           without a kept entry in a slab is not multiplied.
// Pipeline: one warpgroup loads (TMA, bulk copies, cp.async), two multiply; 3 or 4 stages.
// Predicted: 90 %, 16 bit: 45 us at 9 TB/s of L2; without a mask 174 us.
// Measured: 70 us (H200, 476 MB out of L2); without a mask 180 us, cuBLAS 173. TF32: 170 and 585,
//           cuBLAS 324: there `b` passes through registers.
// Grid:     persistent, one CTA a multiprocessor.
#include <algorithm>

#include "cuda/core/device.h"
#include "cuda/core/launch.h"
#include "cuda/core/overlap.cuh"
#include "cuda/core/warpgroup.cuh"
#include "cuda/kernels/masked_matmul/choice.cuh"
#include "cuda/tile/strip/load.cuh"
#include "cuda/tile/strip/mma.cuh"
#include "cuda/tile/strip/ring.cuh"

namespace jaxsparse {
namespace {

constexpr int kConsumers = 2, kThreads = 128 * (kConsumers + 1);
// A gathering thread of 16-bit rows holds twice as many addresses, TF32 fragments are held to
// multiply.
template <typename T>
constexpr int kMultiplyRegisters = DTypeTraits<T>::kBytes == 2 ? 208 : 216;
template <typename T>
constexpr int kLoadRegisters = DTypeTraits<T>::kBytes == 2 ? 88 : 72;

// One warp: slabs by TMA, 32 entries of the list at a time.
template <typename T>
__device__ __forceinline__ void ProduceBoxes(const StripTiles& tiles, StripLoad<T>& load,
                                             StripStage stage) {
  const int lane = threadIdx.x % 32;
  for (int64_t item = blockIdx.x; item < tiles.count(); item += gridDim.x) {
    const StripTile tile = tiles.Find(item);
    load.Begin(tiles, tile);
    int entries = 0;
    for (int s = 0; s < tile.steps; ++s) {
      if (s % 32 == 0) entries = s + lane < tile.steps ? __ldg(tile.entries + s + lane) : 0;
      const int entry = __shfl_sync(~0u, entries, s % 32);
      ptx::BarrierWait(stage.empty(), stage.parity ^ 1);
      if (lane == 0) stage.ring.live[stage.at] = entry & 15;
      load.LoadBoxes(stage.data(), entry >> 4, entry & 15, stage.full());
      stage.Advance();
    }
  }
}

// The loading warpgroup: packed slabs, listed rows.
template <typename T>
__device__ __forceinline__ void ProduceListed(const StripParams& p, const StripTiles& tiles,
                                              StripLoad<T>& load, StripStage stage) {
  for (int64_t item = blockIdx.x; item < tiles.count(); item += gridDim.x) {
    const StripTile tile = tiles.Find(item);
    load.Begin(tiles, tile);
    const char* packed =
        static_cast<const char*>(p.packed) + tile.place * p.slabs * stage.shape.bytes_a;
    if (tile.steps == 0) continue;
    auto listed = load.Read(tile.entries);
    for (int s = 0; s < tile.steps; ++s) {
      const auto next = load.Read(tile.entries + min(s + 1, tile.steps - 1) * p.slab);
      ptx::BarrierWait(stage.empty(), stage.parity ^ 1);
      if (threadIdx.x % kStripLoaders == 0) stage.ring.live[stage.at] = 15;
      load.LoadListed(stage.data(), packed + int64_t{s} * stage.shape.bytes_a, listed,
                      stage.full());
      stage.Advance();
      listed = next;
    }
  }
}

// A multiplying warpgroup: a tile's stages, then its store. A stage without a kept entry in its
// rows is released.
template <typename T>
__device__ __forceinline__ void Consume(const StripParams& p, const StripTiles& tiles,
                                        const StripShape& shape, StripStage stage) {
  const int lane = threadIdx.x % 32, group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  const auto release = [&](int at) {
    __syncwarp();  // all lanes have read it
    if (lane == 0) ptx::BarrierArrive(ptx::SharedAddress(&stage.ring.empty[at]));
  };
  const unsigned pieces = shape.Pieces(group);
  StripMma<T> mma;
  for (int64_t item = blockIdx.x; item < tiles.count(); item += gridDim.x) {
    const StripTile tile = tiles.Find(item);
    int previous = -1;
    mma.Clear();
    for (int s = 0; s < tile.steps; ++s, stage.Advance()) {
      ptx::BarrierWait(stage.full(), stage.parity);
      // The lane that releases the stage is the one that reads what the loader wrote beside it.
      const unsigned live = lane == 0 ? stage.ring.live[stage.at] & pieces : 0;
      if (__shfl_sync(~0u, live, 0) == 0) {
        if (previous >= 0) {  // the loader may need that stage before there is another product
          mma.Finish();
          release(previous);
          previous = -1;
        }
        release(stage.at);
        continue;
      }
      ptx::FenceAsyncProxy();
      mma.Multiply(stage.data() + shape.OffsetA(group), stage.data() + shape.OffsetB(group));
      mma.RetireBefore();
      if (previous >= 0) release(previous);
      previous = stage.at;
    }
    mma.Finish();
    if (previous >= 0) release(previous);
    mma.Store(p, tiles, tile, tile.row + (shape.wide ? 0 : 64 * group), shape.wide ? 4 * group : 0);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads, 1)
    MaskedMatmulStripsKernel(const __grid_constant__ StripParams p,
                             const __grid_constant__ CUtensorMap a_map,
                             const __grid_constant__ CUtensorMap b_map) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t raw[];
  auto& ring = *reinterpret_cast<StripRing*>(raw + (1024 - ptx::SharedAddress(raw) % 1024) % 1024);
  WaitForPrevious();
  const StripShape shape(TakesWide(p));
  const StripTiles tiles(p, shape);
  if (threadIdx.x == 0) {
    for (int s = 0; s < shape.stages; ++s) {
      ptx::BarrierInit(ptx::SharedAddress(&ring.full[s]), p.boxes ? 1 : kStripLoaders + 1);
      ptx::BarrierInit(ptx::SharedAddress(&ring.empty[s]), 4 * kConsumers);
    }
    ptx::FenceBarrierInit();
  }
  __syncthreads();
  const StripStage stage = {ring, shape};
  if (threadIdx.x / 128 < kConsumers) {
    ptx::RaiseRegisters<kMultiplyRegisters<T>>();
    Consume<T>(p, tiles, shape, stage);
  } else {
    ptx::LowerRegisters<kLoadRegisters<T>>();
    StripLoad<T> load(p, shape, &a_map, &b_map, threadIdx.x % kStripLoaders);
    if (!p.boxes) {
      ProduceListed<T>(p, tiles, load, stage);
    } else if (threadIdx.x % kStripLoaders < 32) {
      ProduceBoxes<T>(tiles, load, stage);
    }
  }
#endif
}

constexpr int kSharedBytes = 1024 + static_cast<int>(sizeof(StripRing));
static_assert(kSharedBytes <= 227 * 1024, "the ring does not fit in shared memory");

template <typename T>
cudaError_t Launch(const StripParams& p, const CUtensorMap& a_map, const CUtensorMap& b_map,
                   cudaStream_t stream) {
  const int64_t most =
      int64_t{p.lists} * CeilDiv(p.rows, kWideRows) * CeilDiv(p.column_blocks, kTallBlocks);
  const auto grid = static_cast<unsigned>(std::min(most, MultiProcessors()));
  return LaunchOverlapped(&MaskedMatmulStripsKernel<T>, dim3(grid), kThreads, kSharedBytes, stream,
                          p, a_map, b_map);
}

}  // namespace

cudaError_t LaunchStripProduct(const StripParams& p, DType type, const CUtensorMap& a_map,
                               const CUtensorMap& b_map, cudaStream_t stream) {
  if (type == DType::kF32) return Launch<TF32>(p, a_map, b_map, stream);
  if (type == DType::kBF16) return Launch<__nv_bfloat16>(p, a_map, b_map, stream);
  return Launch<__half>(p, a_map, b_map, stream);
}

cudaError_t PrepareStripProduct() {
  cudaError_t status = PrepareKernel(&MaskedMatmulStripsKernel<TF32>, kSharedBytes);
  if (status == cudaSuccess) {
    status = PrepareKernel(&MaskedMatmulStripsKernel<__nv_bfloat16>, kSharedBytes);
  }
  return status == cudaSuccess ? PrepareKernel(&MaskedMatmulStripsKernel<__half>, kSharedBytes)
                               : status;
}

}  // namespace jaxsparse
