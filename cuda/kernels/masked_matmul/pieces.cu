// Masked product on Hopper's tensor cores for blocks of whole 32 rows and whole slabs of K: tall
// tiles, in which each piece of 32 rows multiplies the slabs that it keeps and no others.
//
// Floor:    2 * kept entries * columns operations at 790 TFLOP/s (16 bit) or 414 (TF32), and what
//           leaves L2: for every 512 rows (1 - s^16) of `b`, for every 128 columns the kept pieces
//           of `a`: at 4096^3, 16 bit, 536 + 268 MB at 50 %, 218 + 107 MB at 90 %.
// Tile:     512 x 64 a CTA, two of them side by side; 16 pieces of 32 rows in four warpgroups. The
//           product is transposed: 64 columns of `b` are wgmma's M, a piece is its N, so that a
//           piece is exact; fragments of `b` go through registers once for four pieces.
// Pipeline: one warpgroup loads by TMA, pieces of `a` for the whole cluster, each CTA half of them;
//           8 slabs of `b` and 38 pieces of `a` in two rings.
// Predicted: 90 %, 16 bit: 36 us at 9 TB/s of L2, 35 us of shared memory. Measured (H200, with the
//           index): 64 us; 50 %: 137 us, predicted 119. What binds is the chain of instructions
//           that each of 16 warps passes through for every visit, also those without a piece of its
//           own.
// Grid:     persistent, as many clusters as the device holds at once.
#include <cstddef>

#include "cuda/core/launch.h"
#include "cuda/core/overlap.cuh"
#include "cuda/core/warpgroup.cuh"
#include "cuda/kernels/masked_matmul/clusters.h"
#include "cuda/kernels/masked_matmul/strips.h"
#include "cuda/tile/load/stack.cuh"
#include "cuda/tile/strip/piece_mma.cuh"
#include "cuda/tile/strip/piece_store.cuh"

namespace jaxsparse {
namespace {

constexpr int kThreads = 128 * (kPieceGroups + 1);
constexpr int kMultiplyRegisters = 112, kLoadRegisters = 32;

// One box of 32 rows of `a` to the same place of every CTA of the cluster.
__device__ __forceinline__ void LoadPiece(uint32_t shared, const CUtensorMap* map, int column,
                                          int row, int which, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared),
      "l"(map), "r"(column), "r"(row), "r"(which), "r"(barrier), "h"(kAllRanks)
      : "memory");
}

// The barrier at the same place in CTA `rank` of the cluster.
__device__ __forceinline__ uint32_t RemoteBarrier(uint32_t barrier, uint32_t rank) {
  uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(barrier), "r"(rank));
  return remote;
}

// Orders no data: it says that something was read.
__device__ __forceinline__ void ArriveRemote(uint32_t remote) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
}

// The first row of a lane's piece: of `a`, or of its turned pieces in slab 0.
__device__ __forceinline__ int PieceRow(const StripParams& p, const PieceTile& tile, int lane) {
  const int piece = tile.row / kPieceRows + lane;
  if (!p.turned) return piece * kPieceRows;
  const int pieces = (p.rows + kPieceRows - 1) / kPieceRows;
  return ((p.pack_lists == 1 ? 0 : tile.list) * pieces + piece) * p.slabs * kPieceRows;
}

// Waits until `visits` visits are over.
__device__ __forceinline__ void WaitFreed(uint32_t empty, int visits) {
  const uint32_t last = visits - 1;
  ptx::BarrierWait(empty + 8 * (last % kPieceStages), last / kPieceStages % 2);
}

// Warp w of the loading warpgroup has every visit whose number is w modulo 4: lane i answers for
// piece i, the lanes after those for boxes of `b`.
template <typename T>
__device__ __forceinline__ void Produce(const StripParams& p, PieceRing& ring,
                                        const CUtensorMap* a_map, const CUtensorMap* b_map) {
  constexpr int kSlab = kSlabBytes / DTypeTraits<T>::kBytes, kBoxes = kColumnBlock / kSlab;
  constexpr uint64_t kNormal = 0x1000000000000000ull;
  const uint32_t base = Held(ptx::SharedAddress(&ring)), rank = Held(ptx::ClusterRank());
  const uint32_t lane = Held(threadIdx.x % 32), warp = Held(threadIdx.x % 128 / 32);
  const PieceTiles tiles(p);
  PieceBatch batch;
  uint32_t before = 0;  // visits of earlier batches
  int freed = 0;        // visits that are known to be over
  for (int item = tiles.first(); item < tiles.count(); item += tiles.step()) {
    const PieceTile tile = tiles.Find(item);
    const int row = PieceRow(p, tile, lane);
    for (int s = 0; s < tile.steps; s += 32, before += batch.count()) {
      batch.Load(tile, s);
      const int back = batch.NeededBack();
      for (int i = (warp - before) % 4; i < batch.count(); i += 4) {
        const uint32_t visit = before + i, stage = visit % kPieceStages;
        const int needed = static_cast<int>(visit) + 1 - __shfl_sync(~0u, back, i);
        const uint32_t first = batch.slot(i), entry = batch.entry(i);
        const uint32_t live = entry & PieceBatch::kLiveMask;
        const uint32_t full = base + offsetof(PieceRing, full) + 8 * stage;
        const uint32_t empty = base + offsetof(PieceRing, empty);
        // A barrier tells its last phase alone: no wait is two rounds ahead of the one before.
        if (needed > freed + kPieceStages) WaitFreed(empty, freed + kPieceStages);
        if (needed > freed) {
          WaitFreed(empty, needed);
          freed = needed;
        }
        if (lane == 0) {
          ptx::BarrierArriveExpect(full, sizeof(ring.b[0]) + __popc(live) * kPieceBytes);
        }
        __syncwarp();
        const uint32_t mine = (first + __popc(live & ((1u << lane) - 1))) % kPieceSlots;
        const int slab = entry >> kTilePieces;
        if (((live >> lane) & 1) != 0 && mine % kPieceCluster == rank) {
          LoadPiece(base + offsetof(PieceRing, a) + mine * kPieceBytes, a_map,
                    p.turned ? 0 : slab * kSlab, p.turned ? row + slab * kPieceRows : row,
                    p.turned || p.a_lists == 1 ? 0 : tile.list, full);
        }
        const uint32_t box = lane - kTilePieces;
        if (box < kBoxes) {
          ptx::LoadStackBox(base + (stage * kBoxes + box) * kSlab * kSlabBytes, b_map,
                            tile.column + box * kSlab, slab * kSlab, p.b_lists == 1 ? 0 : tile.list,
                            full, kNormal);
        }
      }
    }
  }
}

// A multiplying warpgroup. It sees every visit, also those in which none of its pieces lives: a
// stage must not come round unseen.
template <typename T>
__device__ __forceinline__ void Consume(const StripParams& p, PieceRing& ring) {
  const uint32_t base = Held(ptx::SharedAddress(&ring));
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t group = __shfl_sync(~0u, threadIdx.x / 128, 0), shift = group * kGroupPieces;
  const uint32_t empty =
      Held(RemoteBarrier(base + offsetof(PieceRing, empty), lane < kPieceCluster ? lane : 0));
  const PieceTiles tiles(p);
  PieceBatch batch;
  PieceMma<T> mma;
  uint32_t visit = 0;
  for (int item = tiles.first(); item < tiles.count(); item += tiles.step()) {
    const PieceTile tile = tiles.Find(item);
    mma.Clear();
    for (int s = 0; s < tile.steps; s += 32) {
      batch.Load(tile, s);
      constexpr uint32_t kMask = (1 << kGroupPieces) - 1;
      const uint32_t own = batch.entry(lane);
      const uint32_t has = __ballot_sync(~0u, ((own >> shift) & kMask) != 0);
      for (int i = 0; i < batch.count(); ++i, ++visit) {
        const uint32_t stage = visit % kPieceStages;
        ptx::BarrierWait(base + offsetof(PieceRing, full) + 8 * stage, visit / kPieceStages % 2);
        if ((has >> i) & 1) {
          const uint32_t live = batch.entry(i), mine = (live >> shift) & kMask;
          const uint32_t slot = batch.slot(i) + __popc(live & ((1 << shift) - 1));
          mma.Multiply(base + stage * kColumnBlock * kSlabBytes, base + offsetof(PieceRing, a),
                       slot, mine);
        }
        // Every warp releases the stage in all CTAs, because all of them write there.
        __syncwarp();
        if (lane < kPieceCluster) ArriveRemote(empty + 8 * stage);
      }
    }
    if (tile.column >= p.columns) continue;
#pragma unroll
    for (int j = 0; j < kGroupPieces; ++j) {
      const PieceTarget to = {tile.list, tile.row + static_cast<int>(shift + j) * kPieceRows,
                              tile.column};
      if (to.row >= p.rows) break;
      StorePiece<T>(p, to, mma.sums(j), ptx::SharedAddress(ring.out[group]), 1 + group);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads, 1)
    MaskedMatmulPiecesKernel(const __grid_constant__ StripParams p,
                             const __grid_constant__ CUtensorMap a_map,
                             const __grid_constant__ CUtensorMap b_map) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t raw[];
  auto& ring = *reinterpret_cast<PieceRing*>(raw + (1024 - ptx::SharedAddress(raw) % 1024) % 1024);
  if (threadIdx.x == 0) {
    for (int s = 0; s < kPieceStages; ++s) {
      ptx::BarrierInit(ptx::SharedAddress(&ring.full[s]), 1);
      ptx::BarrierInit(ptx::SharedAddress(&ring.empty[s]), 4 * kPieceGroups * kPieceCluster);
    }
    ptx::FenceBarrierInit();
  }
  ptx::ClusterSync();
  WaitForPrevious();
  if (threadIdx.x / 128 < kPieceGroups) {
    ptx::RaiseRegisters<kMultiplyRegisters>();
    Consume<T>(p, ring);
  } else {
    ptx::LowerRegisters<kLoadRegisters>();
    Produce<T>(p, ring, &a_map, &b_map);
  }
  ptx::ClusterSync();  // the others write and signal here until they are done
#endif
}

constexpr int kSharedBytes = 1024 + static_cast<int>(sizeof(PieceRing));
static_assert(kSharedBytes <= 227 * 1024, "the rings do not fit in shared memory");

template <typename T>
cudaError_t Launch(const StripParams& p, const CUtensorMap& a_map, const CUtensorMap& b_map,
                   cudaStream_t stream) {
  PieceLaunch launch(kThreads, kSharedBytes);
  const cudaError_t status = launch.Fit<MaskedMatmulPiecesKernel<T>>(p);
  if (status != cudaSuccess) return status;
  launch.config.stream = stream;
  return cudaLaunchKernelEx(&launch.config, MaskedMatmulPiecesKernel<T>, p, a_map, b_map);
}

}  // namespace

cudaError_t LaunchPieceProduct(const StripParams& p, DType type, const CUtensorMap& a_map,
                               const CUtensorMap& b_map, cudaStream_t stream) {
  if (type == DType::kF32) return Launch<TF32>(p, a_map, b_map, stream);
  if (type == DType::kBF16) return Launch<__nv_bfloat16>(p, a_map, b_map, stream);
  return Launch<__half>(p, a_map, b_map, stream);
}

cudaError_t PreparePieceProduct() {
  cudaError_t status = PrepareKernel(&MaskedMatmulPiecesKernel<TF32>, kSharedBytes);
  if (status == cudaSuccess) {
    status = PrepareKernel(&MaskedMatmulPiecesKernel<__nv_bfloat16>, kSharedBytes);
  }
  return status == cudaSuccess ? PrepareKernel(&MaskedMatmulPiecesKernel<__half>, kSharedBytes)
                               : status;
}

}  // namespace jaxsparse
