// Masked product on Hopper's tensor cores for blocks of whole 32 rows and whole slabs of K: tiles
// of four pieces of 32 rows, each of which multiplies the slabs that it keeps and no others.
//
// Floor:    2 * kept entries * columns operations at 790 TFLOP/s (16 bit) or 414 (TF32), and what
//           leaves L2: for every 128 rows (1 - s^4) of `b`, for every 256 columns the kept pieces
//           of `a`: at 4096^3, 16 bit, 1007 + 268 MB at 50 %, 369 + 54 MB at 90 %.
// Tile:     128 x 256; a warpgroup has 64 of the columns and all four pieces, so all of them do the
//           same. The product is transposed, as in tiles of pieces.
// Pipeline: four warps load by TMA, four stages of a slab of `b` and the pieces that keep it.
// Grid:     persistent; where some rows have many more visits than others, tiles go out in their
//           order and back in every other round, so that sums of visits come out even.
// Predicted: 90 %, 16 bit: 47 us at 9 TB/s of L2, and 4 of index. Measured (H200, with the index):
//           53 us (425 MB), 50 %: 139, 95 %: 37; TF32 114, 321 and 72.
#include <algorithm>
#include <limits>

#include "cuda/core/device.h"
#include "cuda/core/launch.h"
#include "cuda/core/overlap.cuh"
#include "cuda/core/warpgroup.cuh"
#include "cuda/kernels/masked_matmul/panels.cuh"
#include "cuda/tile/load/stack.cuh"
#include "cuda/tile/pipeline.cuh"
#include "cuda/tile/strip/piece_store.cuh"

namespace jaxsparse {
namespace {

constexpr int kThreads = 128 * (kPanelGroups + 1);
constexpr int kMultiplyRegisters = 112, kLoadRegisters = 32;

// Loading warp w answers for piece w and for every fourth box of `b` from the w-th on.
template <typename T>
__device__ __forceinline__ void Produce(const StripParams& p, PanelRing& ring,
                                        const CUtensorMap* a_map, const CUtensorMap* b_map) {
  constexpr int kSlab = kSlabBytes / DTypeTraits<T>::kBytes, kBoxes = kPanelColumns / kSlab;
  constexpr int kBoxBytes = kSlab * kSlabBytes;
  constexpr uint64_t kNormal = 0x1000000000000000ull;
  const int warp = __shfl_sync(~0u, threadIdx.x % 128 / 32, 0);
  const PanelTiles tiles(p, ring.order);
  RingPosition<kPanelStages> at;
  PanelTile tile = tiles.Find(tiles.first()), next;
  for (int item = tiles.first(); item < tiles.count(); item += tiles.step(), tile = next) {
    next = tiles.Find(item + tiles.step());
    const int row = PieceRow(p, tile, warp), b_list = p.b_lists == 1 ? 0 : tile.list;
    const int a_list = p.turned || p.a_lists == 1 ? 0 : tile.list;
    PanelVisits visits(tile);
    for (int s = 0; s < tile.steps; ++s, at.Advance()) {
      const int entry = visits.Entry(s), live = entry & kPanelMask, slab = entry >> kTilePieces;
      const bool mine = ((live >> warp) & 1) != 0;
      const int slot = __popc(live & ((1 << warp) - 1));
      const uint32_t full = ptx::SharedAddress(&ring.full[at.stage]);
      ptx::BarrierWait(ptx::SharedAddress(&ring.empty[at.stage]), at.parity ^ 1);
      if (ElectLane()) {
        ptx::BarrierArriveExpect(full,
                                 kBoxes / kPanelLoaders * kBoxBytes + (mine ? kPieceBytes : 0));
        if (mine) {
          ptx::LoadStackBox(ptx::SharedAddress(ring.a[at.stage]) + slot * kPieceBytes, a_map,
                            p.turned ? 0 : slab * kSlab, p.turned ? row + slab * kPieceRows : row,
                            a_list, full, kNormal);
        }
#pragma unroll
        for (int i = 0; i < kBoxes / kPanelLoaders; ++i) {
          const int box = warp + kPanelLoaders * i;
          ptx::LoadStackBox(ptx::SharedAddress(ring.b[at.stage]) + box * kBoxBytes, b_map,
                            tile.column + box * kSlab, slab * kSlab, b_list, full, kNormal);
        }
      }
      __syncwarp();
    }
  }
}

// A multiplying warpgroup: 64 columns of the tile, all of its pieces.
template <typename T>
__device__ __forceinline__ void Consume(const StripParams& p, PanelRing& ring) {
  const int lane = threadIdx.x % 32, group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  const PanelTiles tiles(p, ring.order);
  PieceMma<T> mma;
  RingPosition<kPanelStages> at;
  PanelTile tile = tiles.Find(tiles.first()), next;
  for (int item = tiles.first(); item < tiles.count(); item += tiles.step(), tile = next) {
    next = tiles.Find(item + tiles.step());
    const int column = tile.column + group * kColumnBlock;
    mma.Clear();
    PanelVisits visits(tile);
    for (int s = 0; s < tile.steps; ++s, at.Advance()) {
      const int live = visits.Entry(s) & kPanelMask;
      ptx::BarrierWait(ptx::SharedAddress(&ring.full[at.stage]), at.parity);
      mma.Multiply(ptx::SharedAddress(ring.b[at.stage]) + group * kColumnBlock * kSlabBytes,
                   ptx::SharedAddress(ring.a[at.stage]), 0, live);
      __syncwarp();  // all lanes have read it
      if (lane == 0) ptx::BarrierArrive(ptx::SharedAddress(&ring.empty[at.stage]));
    }
    if (column >= p.columns) continue;
#pragma unroll
    for (int j = 0; j < kPanelPieces; ++j) {
      const PieceTarget to = {tile.list, tile.row + j * kPieceRows, column};
      if (to.row >= p.rows) break;
      StorePiece<T>(p, to, mma.sums(j), ptx::SharedAddress(ring.out[group]), 1 + group);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads, 1)
    MaskedMatmulPanelsKernel(const __grid_constant__ StripParams p, int even,
                             const __grid_constant__ CUtensorMap a_map,
                             const __grid_constant__ CUtensorMap b_map) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t raw[];
  auto& ring = *reinterpret_cast<PanelRing*>(raw + (1024 - ptx::SharedAddress(raw) % 1024) % 1024);
  if (threadIdx.x == 0) {
    for (int s = 0; s < kPanelStages; ++s) {
      ptx::BarrierInit(ptx::SharedAddress(&ring.full[s]), kPanelLoaders);
      ptx::BarrierInit(ptx::SharedAddress(&ring.empty[s]), 4 * kPanelGroups);
    }
    ptx::FenceBarrierInit();
  }
  __syncthreads();
  WaitForPrevious();
  OrderTiles(p, even, ring.order);
  if (threadIdx.x / 128 < kPanelGroups) {
    ptx::RaiseRegisters<kMultiplyRegisters>();
    Consume<T>(p, ring);
  } else {
    ptx::LowerRegisters<kLoadRegisters>();
    Produce<T>(p, ring, &a_map, &b_map);
  }
#endif
}

constexpr int kSharedBytes = 1024 + static_cast<int>(sizeof(PanelRing));
static_assert(kSharedBytes <= 227 * 1024, "the ring does not fit in shared memory");

template <typename T>
cudaError_t Launch(const StripParams& p, const CUtensorMap& a_map, const CUtensorMap& b_map,
                   cudaStream_t stream) {
  const int64_t items = int64_t{p.lists} * p.index.piece_tiles * CeilDiv(p.columns, kPanelColumns);
  if (items > std::numeric_limits<int32_t>::max() / 2) return cudaErrorInvalidConfiguration;
  const auto grid = static_cast<unsigned>(std::min(items, MultiProcessors()));
  return LaunchOverlapped(&MaskedMatmulPanelsKernel<T>, dim3(grid), kThreads, kSharedBytes, stream,
                          p, EvenCtas(items, p.index.piece_tiles), a_map, b_map);
}

}  // namespace

cudaError_t LaunchPanelProduct(const StripParams& p, DType type, const CUtensorMap& a_map,
                               const CUtensorMap& b_map, cudaStream_t stream) {
  if (type == DType::kF32) return Launch<TF32>(p, a_map, b_map, stream);
  if (type == DType::kBF16) return Launch<__nv_bfloat16>(p, a_map, b_map, stream);
  return Launch<__half>(p, a_map, b_map, stream);
}

cudaError_t PreparePanelProduct() {
  cudaError_t status = PrepareKernel(&MaskedMatmulPanelsKernel<TF32>, kSharedBytes);
  if (status == cudaSuccess) {
    status = PrepareKernel(&MaskedMatmulPanelsKernel<__nv_bfloat16>, kSharedBytes);
  }
  return status == cudaSuccess ? PrepareKernel(&MaskedMatmulPanelsKernel<__half>, kSharedBytes)
                               : status;
}

}  // namespace jaxsparse
