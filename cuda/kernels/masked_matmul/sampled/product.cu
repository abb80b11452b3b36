// Sampled product on Hopper's tensor cores: out = mask * (a b^T), both operands with K contiguous,
// computed where it is wanted and nowhere else. The gradient of a masked weight.
//
// Floor:    2 * wanted outputs * K operations; both operands and the result once at 4.3 TB/s; out
//           of L2 192 rows of K for every tile: at 4096 x 2048 x 4096 in float32 and 95 % unwanted,
//           32x64, 1.6 MB for each of about 140 tiles, 24 us at 9 TB/s, and 31 us of memory.
// Tile:     64 rows of one operand x 128 rows of the other, those that are wanted alone. Where
//           blocks are whole 32 rows by 64 columns, the 64 are columns of the result and the 128
//           four pieces of 32 of its rows; else 64 rows of it and 128 single columns, gathered.
// Pipeline: a warp loads by TMA (four gather single rows by cp.async), a warpgroup multiplies, the
//           other warps write zeros where nothing is listed; 4 stages of 24 KB, two CTAs a
//           multiprocessor.
// Grid:     persistent; the first tiles of all panels come first, so that CTAs find them together.
// Measured (H200, with the index): that case 61 us, 32x1 116; 50 % unwanted 211 and 385, cuBLAS
// 180.
#include "cuda/core/device.h"
#include "cuda/core/launch.h"
#include "cuda/core/overlap.cuh"
#include "cuda/core/warpgroup.cuh"
#include "cuda/kernels/masked_matmul/sampled/store.cuh"
#include "cuda/kernels/masked_matmul/strips.h"
#include "cuda/tile/load/row_gather.cuh"
#include "cuda/tile/load/stack.cuh"
#include "cuda/tile/mma/operands.cuh"
#include "cuda/tile/pipeline.cuh"

namespace jaxsparse {
namespace {

constexpr int kStages = 4, kCtas = 2;  // CTAs a multiprocessor
constexpr int kThreads = 256;
// Warps that write zeros: the last ones. Those that gather do so when they have nothing to load.
template <bool Boxes>
constexpr int kZeroWarps = Boxes ? 3 : 4;

template <bool Boxes>
struct SampledRing {
  uint8_t fixed[kStages][kPanelRows * kSlabBytes];
  uint8_t picked[kStages][kPickedRows * kSlabBytes];
  uint64_t full[kStages], empty[kStages];
};

// The loading warpgroup where a unit is a box: its first warp, a lane a box.
template <typename T>
__device__ __forceinline__ void ProduceBoxes(const SampledParams& p, SampledRing<true>& ring,
                                             const CUtensorMap* fixed, const CUtensorMap* picked) {
  constexpr int kSlab = kSlabBytes / DTypeTraits<T>::kBytes;
  constexpr uint64_t kNormal = 0x1000000000000000ull;
  const int lane = threadIdx.x % 32;
  SampledTiles<true> tiles(p);
  RingPosition<kStages> at;
  for (SampledTile tile; tiles.Next(&tile);) {
    const int row = lane < tile.count ? __ldg(tile.units + lane) * kUnitRows : 0;
    const int bytes = (kPanelRows + tile.count * kUnitRows) * kSlabBytes;
    for (int s = 0; s < p.slabs; ++s, at.Advance()) {
      const uint32_t full = ptx::SharedAddress(&ring.full[at.stage]);
      ptx::BarrierWait(ptx::SharedAddress(&ring.empty[at.stage]), at.parity ^ 1);
      if (lane == 0) ptx::BarrierArriveExpect(full, bytes);
      __syncwarp();
      if (lane < tile.count) {
        ptx::LoadStackBox(ptx::SharedAddress(ring.picked[at.stage]) + lane * kUnitRows * kSlabBytes,
                          picked, s * kSlab, row, p.picked_lists == 1 ? 0 : tile.list, full,
                          kNormal);
      } else if (lane == kBoxUnits) {
        ptx::LoadStackBox(ptx::SharedAddress(ring.fixed[at.stage]), fixed, s * kSlab,
                          tile.panel * kPanelRows, p.fixed_lists == 1 ? 0 : tile.list, full,
                          kNormal);
      }
    }
  }
}

// The loading warpgroup where a unit is a row.
template <typename T>
__device__ __forceinline__ void ProduceRows(const SampledParams& p, SampledRing<false>& ring,
                                            const CUtensorMap* fixed) {
  constexpr int kSlab = kSlabBytes / DTypeTraits<T>::kBytes;
  constexpr uint64_t kNormal = 0x1000000000000000ull;
  const int thread = threadIdx.x % 128;
  const int64_t list_bytes = int64_t{p.picked_rows} * p.depth * DTypeTraits<T>::kBytes;
  SortedRows rows = {nullptr,       nullptr, nullptr,
                     p.picked_rows, 0,       p.depth * DTypeTraits<T>::kBytes / kRowUnitBytes};
  SampledTiles<false> tiles(p);
  RingPosition<kStages> at;
  for (SampledTile tile; tiles.Next(&tile);) {
    rows.data =
        static_cast<const char*>(p.picked) + (p.picked_lists == 1 ? 0 : tile.list) * list_bytes;
    rows.index = tile.units;
    RowGather<kPickedRows> gather(rows, thread);
    gather.Begin(0, tile.count);
    for (int s = 0; s < p.slabs; ++s, at.Advance()) {
      const uint32_t full = ptx::SharedAddress(&ring.full[at.stage]);
      ptx::BarrierWait(ptx::SharedAddress(&ring.empty[at.stage]), at.parity ^ 1);
      if (thread == 0) {
        ptx::BarrierArriveExpect(full, kPanelRows * kSlabBytes);
        ptx::LoadStackBox(ptx::SharedAddress(ring.fixed[at.stage]), fixed, s * kSlab,
                          tile.panel * kPanelRows, p.fixed_lists == 1 ? 0 : tile.list, full,
                          kNormal);
      }
      gather.Copy(ptx::SharedAddress(ring.picked[at.stage]), s);
      ptx::BarrierArriveAfterCopies(full);
    }
  }
}

// The multiplying warpgroup.
template <typename T, bool Boxes>
__device__ __forceinline__ void Consume(const SampledParams& p, SampledRing<Boxes>& ring) {
  const int lane = threadIdx.x % 32;
  const auto release = [&](int stage) {
    if (lane == 0) ptx::BarrierArrive(ptx::SharedAddress(&ring.empty[stage]));
  };
  SampledTiles<Boxes> tiles(p);
  RingPosition<kStages> at;
  OperandMma<T, kPickedRows, false, false> mma;
  for (SampledTile tile; tiles.Next(&tile);) {
    mma.Clear();
    int previous = 0;
    for (int s = 0; s < p.slabs; ++s, at.Advance()) {
      ptx::BarrierWait(ptx::SharedAddress(&ring.full[at.stage]), at.parity);
      if (!Boxes) ptx::FenceAsyncProxy();
      mma.Multiply(ptx::SharedAddress(ring.fixed[at.stage]),
                   ptx::SharedAddress(ring.picked[at.stage]));
      mma.template Retire<1>();
      if (s > 0) release(previous);
      previous = at.stage;
    }
    mma.template Retire<0>();
    release(previous);
    if constexpr (Boxes) {
      StoreBoxes<T>(p, tile, mma.acc);
    } else {
      StoreRows<T>(p, tile, mma.acc);
    }
  }
}

template <typename T, bool Boxes>
__global__ void __launch_bounds__(kThreads, kCtas)
    SampledMatmulKernel(const __grid_constant__ SampledParams p,
                        const __grid_constant__ CUtensorMap fixed,
                        const __grid_constant__ CUtensorMap picked) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t raw[];
  auto& ring =
      *reinterpret_cast<SampledRing<Boxes>*>(raw + (1024 - ptx::SharedAddress(raw) % 1024) % 1024);
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      ptx::BarrierInit(ptx::SharedAddress(&ring.full[s]), Boxes ? 1 : 128 + 1);
      ptx::BarrierInit(ptx::SharedAddress(&ring.empty[s]), 4);
    }
    ptx::FenceBarrierInit();
  }
  __syncthreads();
  WaitForPrevious();
  const int warp = threadIdx.x / 32;
  if (warp < 4) return Consume<T, Boxes>(p, ring);
  const int64_t zero_warps = int64_t{gridDim.x} * kZeroWarps<Boxes>;
  const int64_t zero_warp = int64_t{blockIdx.x} * kZeroWarps<Boxes> + warp - 8 + kZeroWarps<Boxes>;
  const int bytes = p.out_f32 ? 4 : DTypeTraits<T>::kBytes;
  if constexpr (Boxes) {
    if (warp == 4) return ProduceBoxes<T>(p, ring, &fixed, &picked);
    WriteZeroBoxes(p, zero_warp, zero_warps, bytes);
  } else {
    ProduceRows<T>(p, ring, &fixed);
    WriteZeroColumns(p, zero_warp, zero_warps, bytes);
  }
#endif
}

constexpr int kSharedBytes = 1024 + static_cast<int>(sizeof(SampledRing<true>));
static_assert(kCtas * (kSharedBytes + 1024) <= 228 * 1024, "two CTAs do not fit");

template <typename T>
cudaError_t Launch(const SampledParams& p, bool boxes, const CUtensorMap& fixed,
                   const CUtensorMap& picked, cudaStream_t stream) {
  const auto grid = static_cast<unsigned>(kCtas * MultiProcessors());
  const auto kernel = boxes ? &SampledMatmulKernel<T, true> : &SampledMatmulKernel<T, false>;
  return LaunchOverlapped(kernel, dim3(grid), kThreads, kSharedBytes, stream, p, fixed, picked);
}

template <typename T>
cudaError_t Prepare() {
  const cudaError_t status = PrepareKernel(&SampledMatmulKernel<T, true>, kSharedBytes);
  return status == cudaSuccess ? PrepareKernel(&SampledMatmulKernel<T, false>, kSharedBytes)
                               : status;
}

}  // namespace

cudaError_t LaunchSampledProduct(const SampledParams& p, bool boxes, DType type,
                                 const CUtensorMap& fixed, const CUtensorMap& picked,
                                 cudaStream_t stream) {
  if (type == DType::kF32) return Launch<TF32>(p, boxes, fixed, picked, stream);
  if (type == DType::kBF16) return Launch<__nv_bfloat16>(p, boxes, fixed, picked, stream);
  return Launch<__half>(p, boxes, fixed, picked, stream);
}

cudaError_t PrepareSampledProduct() {
  cudaError_t status = Prepare<TF32>();
  if (status == cudaSuccess) status = Prepare<__nv_bfloat16>();
  return status == cudaSuccess ? Prepare<__half>() : status;
}

}  // namespace jaxsparse
