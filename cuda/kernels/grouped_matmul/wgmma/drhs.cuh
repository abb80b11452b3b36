// The gradient of the weights of grouped products on Hopper's tensor cores: for each group
// lhs^T @ gy with its sorted rows as K, both operands gathered in their own layout.
//
// Floor:    2 * rows * K * N operations at 790 TFLOP/s; both operands once for every row of tiles
//           of the other from L2; the result written once at 4.3 TB/s.
// Tile:     128 rows (depth) x 256 columns (outputs) of one group, its sorted rows in steps of 64.
// Pipeline: one warpgroup loads, two multiply; four stages. Rows that follow each other come by TMA
//           in whole steps, others by cp.async. Tensor cores read both operands with K as the outer
//           axis. Row weights multiply lhs between shared memory and the tensor cores, in
//           registers.
// Grid:     persistent, one CTA a multiprocessor.
// Plan:     a CTA sums up to 192 group sizes itself; more take a kernel before.
// Stores:   a finished tile waits packed in registers and leaves during the next one's first steps.
// Predicted: a step costs what one of the product does, 1024 to 1330 cycles; with 8 steps a tile
//           the store of 64 KB would add a third.
// Measured (H200, bf16): 686 TFLOP/s at 8192 x 4096 x 14336 with 8 equal groups (16 steps a tile),
//           570 with unequal ones; 4096 rows, 768 x 3072: 38 us with 8 equal groups, 99 us with 64
//           (302 MB written, 3 TB/s); 43 and 111 where a kernel summed up the sizes.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/core/warpgroup.cuh"
#include "cuda/kernels/grouped_matmul/plan.h"
#include "cuda/tile/load/depth_gather.cuh"
#include "cuda/tile/mma/operands.cuh"
#include "cuda/tile/mma/scaled_fragments.cuh"
#include "cuda/tile/pipeline.cuh"
#include "cuda/tile/store/held_tile.cuh"
#include "cuda/tile/store/rows.cuh"

namespace jaxsparse {

struct GroupedDrhsParams {
  SortedRows lhs, gy;     // each the other's partner
  const int32_t* starts;  // [groups + 1]; nullptr: CTAs sum up the sizes
  const int32_t* sizes;
  const float* row_weights;  // nullptr: 1
  void* drhs;
  int groups, sorted_rows, depth, outputs, m_tiles, n_tiles;
  bool out_f32;
  bool lhs_boxes, gy_boxes;  // not gathered: whole steps come in boxes of 64 rows by 128 bytes
};

// Up to this many groups no kernel sums up the sizes.
inline constexpr int kMostDrhsSummed = 192;

template <typename Element, bool ScaledRows>
struct GroupedDrhsConfig {
  using T = Element;
  static constexpr bool kScaled = ScaledRows;
  static constexpr int kTileM = 128, kTileN = 256, kStages = 4;
  static constexpr int kConsumers = 2;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kMultiplyRegisters = 224, kLoadRegisters = 56;

  using LoadA = DepthGather<kTileM / 64>;
  using LoadB = DepthGather<kTileN / 64>;
  using Mma = OperandMma<T, kTileN, true, true>;
  using Ring = Pipeline<kStages, kDepthThreads, 4 * kConsumers, 1>;
  using Position = RingPosition<kStages>;
  using Rows = RowStore<T, kTileN>;
  using Boxes = BoxStore<T, kTileN>;
  using Held = HeldTile<T, kTileN>;
  static constexpr int kHead = Boxes::kBlocks;  // steps of a tile in which the one before leaves

  struct alignas(1024) Shared {
    uint8_t a[kStages][LoadA::kBytes];
    uint8_t b[kStages][LoadB::kBytes];
    uint8_t out[4 * kConsumers][Boxes::kWarpBytes];
    float weights[kStages][kDepthRows];
    int32_t starts[kMostDrhsSummed + 1];
    Ring ring;
  };
  static constexpr int kSharedBytes = sizeof(Shared) + 1024;  // room to align
  static_assert(kSharedBytes <= 227 * 1024, "the stages do not fit in shared memory");
};

// One warp: where each group's rows start, as the plan kernel finds it.
__device__ __forceinline__ void SumStarts(const GroupedDrhsParams& p, int32_t* starts) {
  constexpr int kPerLane = kMostDrhsSummed / 32;
  const int first = threadIdx.x * kPerLane;
  long long sizes[kPerLane], rows = 0;
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    sizes[j] = first + j < p.groups ? max(__ldg(p.sizes + first + j), 0) : 0;
    rows += sizes[j];
  }
  long long end = rows;
  for (int d = 1; d < 32; d *= 2) {
    const long long below = __shfl_up_sync(0xFFFFFFFFu, end, d);
    if (static_cast<int>(threadIdx.x) >= d) end += below;
  }
  long long start = end - rows;
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    starts[first + j] = static_cast<int32_t>(min(start, static_cast<long long>(p.sorted_rows)));
    start += sizes[j];
  }
  if (threadIdx.x == 31) {
    starts[kMostDrhsSummed] =
        static_cast<int32_t>(min(start, static_cast<long long>(p.sorted_rows)));
  }
}

// Tiles of all groups in turn, a group's depth fastest.
class DrhsSchedule {
 public:
  struct Tile {
    int group, m_tile, n_tile;
    int begin, end;  // sorted rows
  };

  __device__ DrhsSchedule(const GroupedDrhsParams& p, const int32_t* starts)
      : p_(p),
        starts_(starts),
        at_(blockIdx.x),
        tiles_(int64_t{p.groups} * p.m_tiles * p.n_tiles) {}

  __device__ bool Next(Tile* tile) {
    if (at_ >= tiles_) return false;
    const int per_group = p_.m_tiles * p_.n_tiles;
    tile->group = static_cast<int>(at_ / per_group);
    const int inside = static_cast<int>(at_ - int64_t{tile->group} * per_group);
    tile->n_tile = inside / p_.m_tiles;
    tile->m_tile = inside - tile->n_tile * p_.m_tiles;
    tile->begin = starts_[tile->group];
    tile->end = starts_[tile->group + 1];
    at_ += gridDim.x;
    return true;
  }

 private:
  const GroupedDrhsParams& p_;
  const int32_t* starts_;
  int64_t at_, tiles_;
};

// The steps of all of a CTA's tiles, one after the other.
class DrhsSteps {
 public:
  struct Step {
    int m_tile, n_tile;
    int first, end;  // sorted rows, `end` the group's
  };

  __device__ DrhsSteps(const GroupedDrhsParams& p, const int32_t* starts) : schedule_(p, starts) {}

  __device__ bool Next(Step* step) {
    first_ += kDepthRows;
    while (first_ >= tile_.end) {
      if (!schedule_.Next(&tile_)) return false;
      first_ = tile_.begin;
    }
    *step = {tile_.m_tile, tile_.n_tile, first_, tile_.end};
    return true;
  }

 private:
  DrhsSchedule schedule_;
  DrhsSchedule::Tile tile_ = {0, 0, 0, 0, 0};
  int first_ = 0;
};

// The weights of the 64 sorted rows from `first` on; zeros where a row does not count, whose weight
// may be NaN. A row's weight comes by one of the threads that know the row, `lhs` of DepthRows.
__device__ __forceinline__ void CopyWeights(const float* weights, int first,
                                            const int (&lhs)[kDepthThreadRows], float* shared,
                                            int thread) {
  static_assert(kDepthThreadRows <= kRowStepUnits, "a row needs a thread");
#pragma unroll
  for (int i = 0; i < kDepthThreadRows; ++i) {
    if (thread % kRowStepUnits != i) continue;
    const int row = thread / kRowStepUnits + i * kDepthRowStep;
    const bool counts = lhs[i] >= 0;
    asm volatile(
        "cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(ptx::SharedAddress(shared + row)),
        "l"(weights + (counts ? first + row : 0)), "r"(counts ? 4 : 0)
        : "memory");
  }
}

// Whether any thread of the loading warpgroup says so.
__device__ __forceinline__ bool AnyLoader(bool mine) {
  int any;
  asm volatile(
      "{\n.reg .pred p, q;\n"
      "setp.ne.b32 p, %1, 0;\n"
      "barrier.red.or.pred q, 1, 128, p;\n"
      "selp.s32 %0, 1, 0, q;\n}"
      : "=r"(any)
      : "r"(static_cast<int>(mine))
      : "memory");
  return any != 0;
}

// One thread: `Blocks` boxes of 64 columns of the rows from `row` on.
template <int Blocks>
__device__ __forceinline__ void LoadBoxes(uint32_t shared, const CUtensorMap* map, int column,
                                          int row, uint32_t barrier) {
#pragma unroll
  for (int b = 0; b < Blocks; ++b) {
    ptx::LoadBox(shared + b * kDepthRows * kRowStepBytes, map, column + b * 64, row, barrier);
  }
}

// The loading warpgroup: both operands' columns of a tile, step by step; the next step's rows are
// looked up while this one's are copied.
template <typename C>
__device__ __forceinline__ void ProduceDepth(const GroupedDrhsParams& p, const CUtensorMap* lhs_map,
                                             const CUtensorMap* gy_map, const int32_t* starts,
                                             typename C::Shared& shared) {
  const int thread = threadIdx.x % kDepthThreads;
  const typename C::LoadA lhs(p.lhs, thread);
  const typename C::LoadB gy(p.gy, thread);
  DepthRows rows(p.lhs, p.gy, thread);
  DrhsSteps steps(p, starts);
  DrhsSteps::Step step, next;
  typename C::Position at;
  bool more = steps.Next(&next);
  if (more) rows.Ask(next.first, next.end);
  while (more) {
    step = next;
    const bool lacks = rows.Take();
    more = steps.Next(&next);
    if (more) rows.Ask(next.first, next.end);
    const uint32_t full = shared.ring.Full(at.stage);
    const uint32_t a = ptx::SharedAddress(shared.a[at.stage]);
    const uint32_t b = ptx::SharedAddress(shared.b[at.stage]);
    const int m = step.m_tile * C::kTileM, n = step.n_tile * C::kTileN;
    const bool whole = (p.lhs_boxes || p.gy_boxes) && !AnyLoader(lacks);
    const bool box_lhs = whole && p.lhs_boxes, box_gy = whole && p.gy_boxes;
    shared.ring.WaitEmpty(at);
    if (thread == 0) {
      const int bytes = (box_lhs ? C::LoadA::kBytes : 0) + (box_gy ? C::LoadB::kBytes : 0);
      ptx::BarrierArriveExpect(full, bytes);
      if (box_lhs) LoadBoxes<C::kTileM / 64>(a, lhs_map, m, step.first, full);
      if (box_gy) LoadBoxes<C::kTileN / 64>(b, gy_map, n, step.first, full);
    }
    if (!box_lhs) lhs.Copy(a, rows.lhs, m / 8);
    if (!box_gy) gy.Copy(b, rows.gy, n / 8);
    if constexpr (C::kScaled) {
      CopyWeights(p.row_weights, step.first, rows.lhs, shared.weights[at.stage], thread);
    }
    ptx::BarrierArriveAfterCopies(full);
    at.Advance();
  }
}

// One tile's stages through the tensor cores; the tile before leaves meanwhile.
template <typename C>
__device__ __forceinline__ void MultiplyDepth(typename C::Mma& mma, typename C::Held& held,
                                              typename C::Shared& shared, typename C::Position& at,
                                              int steps) {
  const int group = ptx::WarpgroupIndex(), lane = threadIdx.x % 32;
  int previous = 0;
  const auto multiply = [&](int step, bool leaves) {
    shared.ring.WaitFull(at);
    const uint32_t a = ptx::SharedAddress(shared.a[at.stage]) + group * C::LoadA::kBlockBytes;
    const uint32_t b = ptx::SharedAddress(shared.b[at.stage]);
    ptx::FenceAsyncProxy();
    if constexpr (C::kScaled) {
      uint32_t fragments[C::Mma::kSlices][4];
      LoadScaledFragments<typename C::T>(fragments, a, shared.weights[at.stage]);
      mma.MultiplyFragments(fragments, b);
      if (leaves) held.Leave(step, steps);
      mma.template Retire<0>();
      shared.ring.Release(at.stage, lane);
    } else {
      mma.Multiply(a, b);
      if (leaves) held.Leave(step, steps);
      mma.template Retire<1>();
      if (step > 0) shared.ring.Release(previous, lane);
    }
    previous = at.stage;
    at.Advance();
  };
  mma.Clear();
#pragma unroll
  for (int step = 0; step < C::kHead; ++step) {
    if (step < steps) multiply(step, true);
  }
  for (int step = C::kHead; step < steps; ++step) multiply(step, false);
  mma.template Retire<0>();
  if (!C::kScaled && steps > 0) shared.ring.Release(previous, lane);
}

template <typename C>
__device__ __forceinline__ void ConsumeDepth(const GroupedDrhsParams& p, const CUtensorMap* out,
                                             const int32_t* starts, typename C::Shared& shared) {
  const typename C::Rows store(p.drhs, p.outputs, p.out_f32);
  const typename C::Boxes boxes(out, ptx::SharedAddress(shared.out[threadIdx.x / 32]));
  typename C::Held held(boxes);
  const int warp_row = threadIdx.x / 32 * kStoreRows, lane_row = threadIdx.x % 32 / 4;
  DrhsSchedule schedule(p, starts);
  typename C::Position at;
  for (DrhsSchedule::Tile tile; schedule.Next(&tile);) {
    typename C::Mma mma;
    const int steps = (tile.end - tile.begin + kDepthRows - 1) / kDepthRows;
    MultiplyDepth<C>(mma, held, shared, at, steps);
    if (steps == 0) held.Leave(0, 0);
    const int first = tile.m_tile * C::kTileM + warp_row, column = tile.n_tile * C::kTileN;
    StoredRows to;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int k = first + lane_row + 8 * h;
      if (k < p.depth) to.row[h] = tile.group * p.depth + k;
      to.counts[h] = steps > 0;
    }
    if (!p.out_f32 && first + kStoreRows <= p.depth) {
      C::Rows::Scale(mma.acc, to);
      held.Hold(mma.acc, tile.group * p.depth + first, column);
    } else {
      store.Store(mma.acc, to, column);
    }
  }
  held.Leave(0, 0);
  boxes.Finish();
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads, 1)
    GroupedDrhsWgmmaKernel(const __grid_constant__ GroupedDrhsParams p,
                           const __grid_constant__ CUtensorMap lhs,
                           const __grid_constant__ CUtensorMap gy,
                           const __grid_constant__ CUtensorMap out) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t raw[];
  const uint32_t skew = (1024 - ptx::SharedAddress(raw) % 1024) % 1024;
  auto& shared = *reinterpret_cast<typename C::Shared*>(raw + skew);
  if (threadIdx.x == 0) shared.ring.Init();
  const bool sums = p.starts == nullptr;
  if (sums && threadIdx.x < 32) SumStarts(p, shared.starts);
  __syncthreads();
  if (ptx::WarpgroupIndex() < C::kConsumers) {
    ptx::RaiseRegisters<C::kMultiplyRegisters>();
    ConsumeDepth<C>(p, &out, sums ? shared.starts : p.starts, shared);
  } else {
    ptx::LowerRegisters<C::kLoadRegisters>();
    ProduceDepth<C>(p, &lhs, &gy, sums ? shared.starts : p.starts, shared);
  }
#endif
}

}  // namespace jaxsparse
