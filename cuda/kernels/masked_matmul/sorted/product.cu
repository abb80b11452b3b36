// Masked product on Hopper's tensor cores for blocks of whole 32 rows and any width, single columns
// above all: tiles of 128 rows gather the rows of `b` that one of their four pieces keeps, and each
// piece multiplies the steps of 32 bytes of K in which it keeps a column.
//
// The order of K is free, so columns are sorted by the pieces that keep them: a step's columns then
// have the same pieces, and pieces condense without an index of their own.
//
// Floor:    2 * kept entries * columns operations, and what leaves L2: for every 128 rows (1 - s^4)
//           of `b`, for every 256 columns what is kept of `a`: as for panels.
// Tile:     128 x 256, as a panel's. Rows of `b` come as boxes of one row by 256 columns.
// Pipeline: four warps load a step of each slab, four stages of 64 (32 in float32) rows of `b` and
//           1 to 16 blocks of `a`.
// Grid:     persistent, in the order of panels.
// Predicted: 4096^3, 32x1, 90 %, 16 bit: 49 us at 9 TB/s of L2. Measured (H200): 66 us, and 16 of
//           index and packing; 50 %: 167 and 25. The loop that asks for rows is what was felt most:
//           with more instructions for a row it took 77 to 96 us at 90 %.
#include <algorithm>
#include <limits>

#include "cuda/core/device.h"
#include "cuda/core/launch.h"
#include "cuda/core/overlap.cuh"
#include "cuda/core/warpgroup.cuh"
#include "cuda/kernels/masked_matmul/sorted/product.cuh"
#include "cuda/tile/pipeline.cuh"
#include "cuda/tile/strip/piece_store.cuh"

namespace jaxsparse {
namespace {

constexpr int kThreads = 128 * (kPanelGroups + 1);
constexpr int kMultiplyRegisters = 112, kLoadRegisters = 32;

// Where the lists and blocks of a tile lie.
template <typename T>
__device__ __forceinline__ const int32_t* Columns(const StripParams& p, const PanelTile& tile) {
  return p.index.sorted.columns + (tile.entries - p.index.piece_entries) * SortedShape<T>::kSlab;
}
__device__ __forceinline__ const char* Blocks(const StripParams& p, const PanelTile& tile) {
  const int64_t at = (p.pack_lists == 1 ? 0 : int64_t{tile.list}) * p.index.piece_tiles +
                     tile.row / (kPanelPieces * kPieceRows);
  return static_cast<const char*>(p.packed) + at * p.slabs * kPanelPieces * kPieceBytes;
}

// Loading warp w has step w of every slab, and the first one the blocks of `a`.
template <typename T>
__device__ __forceinline__ void Produce(const StripParams& p, SortedRing& ring,
                                        const CUtensorMap* b_map) {
  using Shape = SortedShape<T>;
  const int step = __shfl_sync(~0u, threadIdx.x % 128 / 32, 0);
  const PanelTiles tiles(p, ring.order);
  RingPosition<kSortedStages> at;
  PanelTile tile = tiles.Find(tiles.first()), next;
  int32_t* rows = ring.rows[step];
  auto ahead = StepRows<T>::Read(Columns<T>(p, tile), p.slabs, 0, step);
  for (int item = tiles.first(); item < tiles.count(); item += tiles.step(), tile = next) {
    next = tiles.Find(item + tiles.step());
    const int32_t* columns = Columns<T>(p, tile);
    const char* blocks = Blocks(p, tile);
    PanelVisits visits(tile);
    for (int s = 0; s < tile.steps; ++s, at.Advance()) {
      const int visit = s % kListVisits, later = s - visit + kListVisits;
      if (visit == 0) {
        ahead.Put(rows, (p.b_lists == 1 ? 0 : tile.list) * p.depth);
        ahead = later < tile.steps ? StepRows<T>::Read(columns, p.slabs, later, step)
                                   : StepRows<T>::Read(Columns<T>(p, next), p.slabs, 0, step);
      }
      const int live = visits.Entry(s);
      const bool loads = LivePieces(live, step) != 0;
      const uint32_t full = ptx::SharedAddress(&ring.full[at.stage]);
      const uint32_t packed = step == 0 ? __popc(live) * kBlockBytes : 0;
      ptx::BarrierWait(ptx::SharedAddress(&ring.empty[at.stage]), at.parity ^ 1);
      if (ElectLane()) {
        ptx::BarrierArriveExpect(full, (loads ? Shape::kStep * Shape::kRowBytes : 0) + packed);
        if (loads) {
          LoadStep<T>(ptx::SharedAddress(ring.b[at.stage]) + step * Shape::kStepBytes, b_map,
                      rows + visit * Shape::kStep, tile.column / Shape::kBlockColumns, full);
        }
        if (step == 0) ptx::LoadBulk(ptx::SharedAddress(ring.a[at.stage]), blocks, packed, full);
      }
      __syncwarp();
      blocks += packed;
    }
    if (tile.steps == 0) ahead = StepRows<T>::Read(Columns<T>(p, next), p.slabs, 0, step);
  }
}

// A multiplying warpgroup: 64 columns of the tile, all of its pieces.
template <typename T>
__device__ __forceinline__ void Consume(const StripParams& p, SortedRing& ring) {
  const int lane = threadIdx.x % 32, group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  const PanelTiles tiles(p, ring.order);
  SortedMma<T> mma;
  RingPosition<kSortedStages> at;
  PanelTile tile = tiles.Find(tiles.first()), next;
  for (int item = tiles.first(); item < tiles.count(); item += tiles.step(), tile = next) {
    next = tiles.Find(item + tiles.step());
    const int column = tile.column + group * kColumnBlock;
    mma.Clear();
    PanelVisits visits(tile);
    for (int s = 0; s < tile.steps; ++s, at.Advance()) {
      const int live = visits.Entry(s);
      ptx::BarrierWait(ptx::SharedAddress(&ring.full[at.stage]), at.parity);
      mma.Multiply(ptx::SharedAddress(ring.b[at.stage]), group,
                   ptx::SharedAddress(ring.a[at.stage]), live);
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
    MaskedMatmulSortedKernel(const __grid_constant__ StripParams p, int even,
                             const __grid_constant__ CUtensorMap b_map) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t raw[];
  auto& ring = *reinterpret_cast<SortedRing*>(raw + (1024 - ptx::SharedAddress(raw) % 1024) % 1024);
  if (threadIdx.x == 0) {
    for (int s = 0; s < kSortedStages; ++s) {
      ptx::BarrierInit(ptx::SharedAddress(&ring.full[s]), kSlabSteps);
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
    Produce<T>(p, ring, &b_map);
  }
#endif
}

constexpr int kSharedBytes = 1024 + static_cast<int>(sizeof(SortedRing));
static_assert(kSharedBytes <= 227 * 1024, "the ring does not fit in shared memory");

template <typename T>
cudaError_t Launch(const StripParams& p, const CUtensorMap& b_map, cudaStream_t stream) {
  const int64_t items = int64_t{p.lists} * p.index.piece_tiles * CeilDiv(p.columns, kPanelColumns);
  if (items > std::numeric_limits<int32_t>::max() / 2) return cudaErrorInvalidConfiguration;
  const auto grid = static_cast<unsigned>(std::min(items, MultiProcessors()));
  const int even = EvenCtas(items, p.index.piece_tiles);
  return LaunchOverlapped(&MaskedMatmulSortedKernel<T>, dim3(grid), kThreads, kSharedBytes, stream,
                          p, even, b_map);
}

}  // namespace

cudaError_t LaunchSortedProduct(const StripParams& p, DType type, const CUtensorMap& b_map,
                                cudaStream_t stream) {
  if (type == DType::kF32) return Launch<TF32>(p, b_map, stream);
  if (type == DType::kBF16) return Launch<__nv_bfloat16>(p, b_map, stream);
  return Launch<__half>(p, b_map, stream);
}

cudaError_t PrepareSortedProduct() {
  cudaError_t status = PrepareKernel(&MaskedMatmulSortedKernel<TF32>, kSharedBytes);
  if (status == cudaSuccess) {
    status = PrepareKernel(&MaskedMatmulSortedKernel<__nv_bfloat16>, kSharedBytes);
  }
  return status == cudaSuccess ? PrepareKernel(&MaskedMatmulSortedKernel<__half>, kSharedBytes)
                               : status;
}

}  // namespace jaxsparse
