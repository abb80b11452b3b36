// Grouped products on Hopper's tensor cores: gathered or contiguous rows -> dense wgmma tile ->
// rows of the result, persistent over the row tiles of all groups.
//
// Floor:    2 * rows * K * N operations at 790 TFLOP/s (bf16, fp16) or 414 (TF32); the weights of
//           every group that has rows, the rows and the result once at 4.3 TB/s.
// Tile:     128 rows of one group x tile_n columns, K in steps of 128 bytes.
// Pipeline: one warpgroup loads, two multiply 64 rows each; `stages` stages. Contiguous rows come
//           by TMA, gathered ones by cp.async, weights by TMA in the order in which they lie. The
//           loading warps find the tiles and tell them with a tile's first stage: the multiplying
//           ones keep their registers. Half a tile without rows is not multiplied.
// Grid:     persistent, one CTA a multiprocessor; the tiles are found on the device. A last round
//           in which at most half of the CTAs would have a tile hands out half tiles.
// Predicted: a step of 128 x 256 x 64 keeps the tensor cores busy for 1024 cycles and reads 48 KB
//           from L2; 36 bytes a cycle and multiprocessor (8.3 TB/s in all) make that 1330.
// Measured (H200, bf16): 785 TFLOP/s at 8192 x 4096 x 14336 with 8 equal groups, 706 with unequal
//           ones; 581 to 591 from gathered rows. Short sums pay for their start and their stores:
//           555 at 4096 x 768 x 3072 with 8 equal groups, 597 with 65536 rows of K = 768 of 128
//           groups. 64 groups of 64 rows (302 MB of weights) 86 us, 3.9 TB/s with the result.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/core/warpgroup.cuh"
#include "cuda/kernels/grouped_matmul/params.cuh"
#include "cuda/kernels/grouped_matmul/wgmma/schedule.cuh"
#include "cuda/kernels/grouped_matmul/wgmma/variant.h"
#include "cuda/tile/load/stack.cuh"
#include "cuda/tile/mma/operands.cuh"
#include "cuda/tile/pipeline.cuh"
#include "cuda/tile/store/box.cuh"
#include "cuda/tile/store/rows.cuh"

namespace jaxsparse {

template <typename Element, int N, int StageCount, bool KMajorWeights, bool IsGated = false>
struct GroupedConfig {
  using T = Element;
  static constexpr bool kGated = IsGated;  // half of the columns gate the other half
  static constexpr int kTileM = 128, kTileN = N, kStages = StageCount;
  static constexpr int kOutN = kGated ? kTileN / 2 : kTileN;  // of the result
  static constexpr int kConsumers = 2;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kMultiplyRegisters = 208, kLoadRegisters = 88;

  using Gather = RowGather<kTileM>;
  using Weights =
      std::conditional_t<kGated, PairLoad<T, kTileN>, StackLoad<T, kTileN, KMajorWeights>>;
  template <int Columns>
  using Mma = OperandMma<T, Columns, false, !KMajorWeights>;
  using Ring = Pipeline<kStages, Gather::kThreads, 4 * kConsumers, 1>;
  using Position = RingPosition<kStages>;
  static constexpr bool kSplits = !kGated && !KMajorWeights && kTileN == 256;
  using Schedule = GroupedSchedule<kTileM, kSplits>;
  template <int Columns>
  using Rows = RowStore<T, Columns>;
  static constexpr bool kBoxes = DTypeTraits<T>::kBytes == 2;  // results may leave by TMA
  template <int Columns>
  using Boxes = BoxStore<std::conditional_t<kBoxes, T, __half>, Columns>;

  struct alignas(1024) Shared {
    uint8_t a[kStages][kTileM * kRowStepBytes];
    uint8_t b[kStages][Weights::kBytes];
    uint8_t out[kBoxes ? 4 * kConsumers : 1][Boxes<kOutN>::kWarpBytes];
    Ring ring;
    ColumnTile tiles[kStages];  // by the stage of a tile's first step
  };
  static constexpr int kSharedBytes = sizeof(Shared) + 1024;  // room to align
  static_assert(kSharedBytes <= 227 * 1024, "the stages do not fit in shared memory");
};

// A stage is full when the weights' and the contiguous rows' bytes, or all gathered rows have
// landed.
template <typename C>
__device__ __forceinline__ void InitRing(const GroupedParams& p, typename C::Shared& shared) {
  for (int s = 0; s < C::kStages; ++s) {
    ptx::BarrierInit(shared.ring.Full(s), p.contiguous ? 1 : C::Gather::kThreads + 1);
    ptx::BarrierInit(shared.ring.Empty(s), 4 * C::kConsumers);
  }
  ptx::FenceBarrierInit();
}

// Boxes of weights of a tile.
template <typename C>
__device__ __forceinline__ int BoxesOf(const ColumnTile& tile) {
  return C::kSplits ? tile.halves * C::Weights::kBoxes / 2 : C::Weights::kBoxes;
}

// The loading warpgroup where rows are gathered. The next tile is found when this one's first stage
// is on its way.
template <typename C>
__device__ __forceinline__ void ProduceGathered(const GroupedParams& p, const GroupedMaps& maps,
                                                typename C::Shared& shared) {
  const int thread = threadIdx.x % C::Gather::kThreads, warp = thread / 32;
  const typename C::Weights weights(maps, p.read_once);
  typename C::Gather gather(p.lhs, thread);
  typename C::Schedule schedule(p);
  typename C::Position at;
  ColumnTile tile = {0, 0, 1, 2, 0}, next;
  for (bool any = schedule.Next(&tile); any; tile = next) {
    const bool loads = tile.group >= 0;
    if (loads) gather.Begin(tile.first, tile.rows);
    for (int step = 0; step < StepsOf(p, tile); ++step) {
      const uint32_t full = shared.ring.Full(at.stage);
      shared.ring.WaitEmpty(at);
      if (thread == 0) {
        if (step == 0) shared.tiles[at.stage] = tile;
        ptx::BarrierArriveExpect(full, loads ? tile.halves * C::Weights::kBytes / 2 : 0);
      }
      if (loads && thread % 32 == 0 && warp < BoxesOf<C>(tile)) {
        weights.Load(ptx::SharedAddress(shared.b[at.stage]), tile.group, tile.n_half * C::kOutN / 2,
                     step, warp, full);
      }
      if (loads) gather.Copy(ptx::SharedAddress(shared.a[at.stage]), step);
      ptx::BarrierArriveAfterCopies(full);
      at.Advance();
      if (step > 0) continue;
      next = tile;
      any = schedule.Next(&next);
      if (any) FetchIndex(p.lhs, next, thread);
    }
  }
}

// One warp where rows are contiguous, by its first lane. Rows of the box that belong to the next
// group are multiplied and dropped. The next tile is found when the first stage is on its way.
template <typename C>
__device__ __forceinline__ void ProduceBoxes(const GroupedParams& p, const GroupedMaps& maps,
                                             typename C::Shared& shared) {
  const typename C::Weights weights(maps, p.read_once);
  constexpr int kRowBytes = C::kTileM * kRowStepBytes;
  typename C::Schedule schedule(p);
  typename C::Position at;
  const auto load = [&](const ColumnTile& tile, int step) {
    const uint32_t full = shared.ring.Full(at.stage);
    shared.ring.WaitEmpty(at);
    if (step == 0) shared.tiles[at.stage] = tile;
    const int bytes = kRowBytes + tile.halves * C::Weights::kBytes / 2;
    ptx::BarrierArriveExpect(full, tile.group >= 0 ? bytes : 0);
    if (tile.group < 0) return;
    ptx::LoadBox(ptx::SharedAddress(shared.a[at.stage]), &maps.lhs,
                 step * C::Weights::kStepElements, tile.first, full);
#pragma unroll
    for (int box = 0; box < C::Weights::kBoxes; ++box) {
      if (box >= BoxesOf<C>(tile)) break;
      weights.Load(ptx::SharedAddress(shared.b[at.stage]), tile.group, tile.n_half * C::kOutN / 2,
                   step, box, full);
    }
  };
  ColumnTile tile = {0, 0, 1, 2, 0};
  for (bool any = schedule.Next(&tile); any;) {
    ColumnTile next = tile;
    for (int step = 0; step < StepsOf(p, tile); ++step, at.Advance()) {
      if (threadIdx.x % 32 == 0) load(tile, step);
      if (step == 0) {
        __syncwarp();
        any = schedule.Next(&next);
      }
    }
    __syncwarp();
    tile = next;
  }
}

// One tile's stages through the tensor cores; `during(step)` runs while each of the first two steps
// is at work. No steps: the sum means nothing.
template <typename C, class Mma, class During>
__device__ __forceinline__ void MultiplyTile(Mma& mma, typename C::Shared& shared,
                                             typename C::Position& at, int steps, During during) {
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32;
  int previous = 0;
  mma.Clear();
  for (int step = 0; step < steps; ++step) {
    shared.ring.WaitFull(at);
    ptx::FenceAsyncProxy();
    mma.Multiply(ptx::SharedAddress(shared.a[at.stage]) + group * 64 * kRowStepBytes,
                 ptx::SharedAddress(shared.b[at.stage]));
    if (step < 2) during(step);
    mma.template Retire<1>();
    if (step > 0) shared.ring.Release(previous, lane);
    previous = at.stage;
    at.Advance();
  }
  mma.template Retire<0>();
  if (steps > 0) shared.ring.Release(previous, lane);
}

// Lets the stages of a tile go in which this warpgroup has nothing to multiply.
template <typename C>
__device__ __forceinline__ void SkipTile(typename C::Shared& shared, typename C::Position& at,
                                         int steps) {
  for (int step = 0; step < steps; ++step) {
    shared.ring.WaitFull(at);
    shared.ring.Release(at.stage, threadIdx.x % 32);
    at.Advance();
  }
}

// This thread's two rows of a tile: memory is asked about them before the product, and they are
// found and noted while it runs.
class TileRows {
 public:
  __device__ TileRows(const GroupedParams& p, const ColumnTile& tile) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = LaneRow() + 8 * h;
      row_[h] = r < tile.rows ? tile.first + r : -1;
      index_[h] = row_[h];
      if (row_[h] < 0) continue;
      if (p.lhs.index != nullptr) index_[h] = Ask(p.lhs.index + row_[h]);
      if (p.combine.scatter != nullptr) target_[h] = Ask(p.combine.scatter + row_[h]);
      if (p.row_weights != nullptr) to.factor[h] = __int_as_float(Ask(p.row_weights + row_[h]));
    }
  }

  // Where the rows go. Rows to be added up are announced, once, where `announces`.
  __device__ void Find(const GroupedParams& p, bool owned, bool announces) {
    const bool added = p.combine.scatter != nullptr;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      place_[h] = p.combine.capacity;
      if (row_[h] < 0) continue;
      to.counts[h] = owned && p.lhs.Check(index_[h], target_[h]) >= 0;
      if (to.counts[h] || !added) to.row[h] = row_[h];
      if (added && to.counts[h] && announces && threadIdx.x % 4 == 0) {
        place_[h] = atomicAdd(p.combine.counts + target_[h], 1);
      }
    }
  }

  // Notes the announced rows in their slots, some time after Find.
  __device__ void Note(const GroupedParams& p) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (place_[h] >= p.combine.capacity) continue;
      p.combine.slots[int64_t{target_[h]} * p.combine.capacity + place_[h]] = row_[h];
    }
  }

  StoredRows to;

 private:
  __device__ static int LaneRow() {
    return threadIdx.x / 128 * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  }

  __device__ static int Ask(const void* at) {
    int v;
    asm volatile("ld.global.nc.s32 %0, [%1];" : "=r"(v) : "l"(at));
    return v;
  }

  int row_[2], index_[2], target_[2] = {0, 0}, place_[2];
};

// The columns to store: silu of the first half of the sums times the second where they are gated.
template <typename C, class Mma>
__device__ __forceinline__ auto& Finish(Mma& mma) {
  if constexpr (!C::kGated) {
    return mma.acc;
  } else {
    auto& out = reinterpret_cast<float (&)[C::kOutN / 2]>(mma.acc);
#pragma unroll
    for (int i = 0; i < C::kOutN / 2; ++i) {
      out[i] = Gated(mma.acc[i], 1.0f, 0.0f) * mma.acc[i + C::kOutN / 2];
    }
    return out;
  }
}

// Stores a product: a warp whose 16 rows all belong to the tile by TMA, others row by row.
template <typename C, int Columns, class Mma>
__device__ __forceinline__ void StoreTile(const GroupedParams& p, Mma& mma,
                                          const typename C::template Boxes<Columns>& boxes,
                                          const ColumnTile& tile, const StoredRows& to) {
  using Rows = typename C::template Rows<Columns>;
  auto& out = Finish<C>(mma);
  const int column = tile.n_half * C::kOutN / 2;
  if constexpr (C::kBoxes) {
    const int warp_row = threadIdx.x / 32 * kStoreRows;
    if (!p.out_f32 && warp_row + kStoreRows <= tile.rows) {
      Rows::Scale(out, to);
      return boxes.Store(out, tile.first + warp_row, column);
    }
  }
  Rows(p.out, p.outputs, p.out_f32).Store(out, to, column);
}

// A multiplying warpgroup's rows of one tile, or of the half of one.
template <typename C, bool Half>
__device__ __forceinline__ void ConsumeTile(const GroupedParams& p, const CUtensorMap* out,
                                            typename C::Shared& shared, typename C::Position& at,
                                            const ColumnTile& tile) {
  constexpr int kParts = Half ? 2 : 1, kColumns = C::kOutN / kParts;
  const int steps = tile.group >= 0 ? p.k_steps : 0;
  const bool announces = tile.n_half == 0;
  TileRows rows(p, tile);
  typename C::template Mma<C::kTileN / kParts> mma;
  if constexpr (C::kSplits) {  // else the sums of halves would be kept beside those of whole tiles
#pragma unroll
    for (float& v : mma.acc) v = 0.0f;
  }
  MultiplyTile<C>(mma, shared, at, steps, [&](int step) {
    if (step == 1) rows.Find(p, true, announces);
  });
  if (steps == 0) SkipTile<C>(shared, at, 1);
  if (steps < 2) rows.Find(p, steps > 0, announces);
  rows.Note(p);
  const int warp = C::kBoxes ? threadIdx.x / 32 : 0;
  const typename C::template Boxes<kColumns> boxes(out, ptx::SharedAddress(shared.out[warp]));
  StoreTile<C, kColumns>(p, mma, boxes, tile, rows.to);
}

// A multiplying warpgroup: tile after tile, as the loading warps tell them.
template <typename C>
__device__ __forceinline__ void Consume(const GroupedParams& p, const CUtensorMap* out,
                                        typename C::Shared& shared) {
  const int first_row = threadIdx.x / 128 * 64;
  typename C::Position at;
  for (;;) {
    shared.ring.WaitFull(at);
    const ColumnTile tile = Told(shared.tiles[at.stage]);
    if (tile.rows == 0) break;
    if (first_row >= tile.rows) {
      SkipTile<C>(shared, at, StepsOf(p, tile));
    } else if (C::kSplits && tile.halves == 1) {
      ConsumeTile<C, C::kSplits>(p, out, shared, at, tile);
    } else {
      ConsumeTile<C, false>(p, out, shared, at, tile);
    }
  }
  if constexpr (C::kBoxes) {
    if (threadIdx.x % 32 == 0) ptx::WaitBoxesRead<0>();
  }
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads, 1)
    GroupedMatmulWgmmaKernel(const __grid_constant__ GroupedParams p,
                             const __grid_constant__ GroupedMaps maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t raw[];
  const uint32_t skew = (1024 - ptx::SharedAddress(raw) % 1024) % 1024;
  auto& shared = *reinterpret_cast<typename C::Shared*>(raw + skew);
  if (threadIdx.x == 0) {
    ptx::PrefetchTensorMap(&maps.rhs);
    InitRing<C>(p, shared);
  }
  __syncthreads();
  if (threadIdx.x / 128 < C::kConsumers) {
    ptx::RaiseRegisters<C::kMultiplyRegisters>();
    Consume<C>(p, &maps.out, shared);
  } else {
    ptx::LowerRegisters<C::kLoadRegisters>();
    if (!p.contiguous) {
      ProduceGathered<C>(p, maps, shared);
    } else if (threadIdx.x / 32 == 4 * C::kConsumers) {
      ProduceBoxes<C>(p, maps, shared);
    }
  }
#endif
}

template <typename C>
cudaError_t PrepareGrouped() {
  return cudaFuncSetAttribute(GroupedMatmulWgmmaKernel<C>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize, C::kSharedBytes);
}

template <typename T, int TileN, int Stages>
cudaError_t GroupedMatmulVariant<T, TileN, Stages>::Prepare() {
  const cudaError_t status = PrepareGrouped<GroupedConfig<T, TileN, Stages, true>>();
  if constexpr (DTypeTraits<T>::kTransposableB) {
    if (status == cudaSuccess) return PrepareGrouped<GroupedConfig<T, TileN, Stages, false>>();
  }
  return status;
}

template <typename C>
cudaError_t LaunchGrouped(const GroupedParams& p, const GroupedMaps& maps, int ctas,
                          cudaStream_t stream) {
  GroupedMatmulWgmmaKernel<C><<<ctas, C::kThreads, C::kSharedBytes, stream>>>(p, maps);
  return cudaGetLastError();
}

template <typename T, int TileN, int Stages>
cudaError_t GroupedMatmulVariant<T, TileN, Stages>::Launch(const GroupedParams& p,
                                                           const GroupedMaps& maps, bool k_major,
                                                           int ctas, cudaStream_t stream) {
  if constexpr (DTypeTraits<T>::kTransposableB) {
    if (!k_major) {
      return LaunchGrouped<GroupedConfig<T, TileN, Stages, false>>(p, maps, ctas, stream);
    }
  }
  return LaunchGrouped<GroupedConfig<T, TileN, Stages, true>>(p, maps, ctas, stream);
}

}  // namespace jaxsparse
