// Kernel gradient of a masked convolution on Hopper's tensor cores: rows m run over (tap, input
// channel), columns over output channels, and K over the active pixels.
//
// Floor:    2 * active * taps * C * O operations at 790 TFLOP/s.
// Tile:     tile_m rows x tile_n columns, K in steps of 64 pixels. Both operands are gathered in
//           their own layout, channels contiguous: the tensor cores read them with K as the outer
//           axis.
// Pipeline: one warpgroup gathers by cp.async, two or three multiply; `stages` stages. Where a
//           pixel's window lies and which taps exist was worked out once, by a kernel before (16
//           bytes a pixel), and is read one step ahead. (The gathering threads finding the pixels
//           themselves, by a meeting in every step: 2.2 times the time.)
// Grid:     one CTA a multiprocessor; all steps of all tiles in equal runs (DepthSchedule); tiles
//           that are cut are added up by a kernel behind.
// Predicted: a step of 128x256x64 keeps the tensor cores busy for 1024 cycles and brings 48 KB; L2
//           delivers about 37 bytes a cycle to a multiprocessor, so 1330 cycles, 77 %.
// Measured (H200, bf16, 256 -> 256 channels, 3x3): 660 TFLOP/s (84 %) a further pixel, 1400 cycles
//           a step, and 16 us a call whatever the mask: 3 to find the pixels, 5 to start and to
//           store the sums, 5 to add up 20 MB of parts, the rest between launches. 600 TFLOP/s at
//           100000 pixels, 500 at 30000, 345 at 10000. Two gathering warpgroups, gathering through
//           L1, and the operands exchanged (64 outputs as rows: a third less shared memory to
//           read) change nothing: it is what L2 delivers. Early launches (PDL) would save 1.5 us.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/core/warpgroup.cuh"
#include "cuda/core/wgmma/operands.cuh"
#include "cuda/kernels/masked_conv/dkernel/wgmma/params.cuh"
#include "cuda/tile/conv/depth_schedule.cuh"
#include "cuda/tile/load/depth_pixels.cuh"
#include "cuda/tile/pipeline.cuh"

namespace jaxsparse {

template <typename Element, int M, int N, int StageCount, int Groups>
struct DkernelConfig {
  using T = Element;
  static constexpr int kTileM = M, kTileN = N, kStages = StageCount;
  static constexpr int kConsumers = Groups;                 // multiplying warpgroups
  static constexpr int kBlocks = kTileM / 64 / kConsumers;  // 64-row blocks of each
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kMultiplyRegisters = kConsumers == 2 ? 208 : 128, kLoadRegisters = 88;
  static_assert(kConsumers == 2 || kConsumers == 3, "the registers are shared out for 2 or 3");
  static_assert(kTileM % (64 * kConsumers) == 0, "each warpgroup has as many blocks of 64 rows");
  static_assert(kBlocks * kTileN <= (kConsumers == 2 ? 256 : 128), "the sums fit in registers");

  using LoadA = DepthTaps<kTileM / 64>;
  using LoadB = DepthColumns<kTileN / 64>;
  using Ring = Pipeline<kStages, kDepthThreads - 1, 4 * kConsumers, 1>;
  using Position = RingPosition<kStages>;

  struct alignas(1024) Shared {
    uint8_t a[kStages][LoadA::kBytes];
    uint8_t b[kStages][LoadB::kBytes];
    Ring ring;
  };
  static constexpr int kSharedBytes = sizeof(Shared) + 1024;  // room to align
  static_assert(kSharedBytes <= 227 * 1024, "the stages do not fit in shared memory");
};

// One warpgroup's blocks of 64 rows. Column 8*j + 2*(lane%4) + e of row 16*warp + lane/4 + 8*h of
// block b is acc[b][4*j + 2*h + e].
template <typename C>
class DepthMma {
 public:
  __device__ void Clear() { accumulate_ = 0; }

  // Starts the products of one step. Asynchronous: see Retire.
  __device__ void Multiply(uint32_t a, uint32_t b) {
    constexpr int kBlockBytes = kDepthRows * kRowStepBytes, kSliceBytes = 16 * kRowStepBytes;
    const uint64_t db = ptx::TileDescriptor(b, kBlockBytes);
    Touch();
    ptx::MmaFence();
#pragma unroll
    for (int k = 0; k < kDepthRows / 16; ++k) {
#pragma unroll
      for (int i = 0; i < C::kBlocks; ++i) {
        const uint64_t da = ptx::TileDescriptor(a + i * kBlockBytes, 0);
        ptx::MmaShared<typename C::T, C::kTileN, true, true>(
            acc[i], da + k * kSliceBytes / 16, db + k * kSliceBytes / 16, accumulate_);
      }
      accumulate_ = 1;
    }
    ptx::MmaCommit();
    Touch();
  }

  // Waits until at most `Pending` steps are being multiplied.
  template <int Pending>
  __device__ void Retire() {
    ptx::MmaWait<Pending>();
    Touch();
  }

  float acc[C::kBlocks][C::kTileN / 2];

 private:
  __device__ void Touch() {
#pragma unroll
    for (int i = 0; i < C::kBlocks; ++i) ptx::MmaTouch(acc[i]);
  }

  int accumulate_ = 0;
};

// A worker's steps one after the other, whatever tile they belong to.
class DepthSteps {
 public:
  __device__ DepthSteps(const DepthSchedule& schedule, int worker) : walk_(schedule, worker) {}

  __device__ bool Next() {
    if (++step >= segment_.end) {
      if (!walk_.Next(&segment_)) return false;
      step = segment_.begin;
      tile = segment_.tile;
    }
    return true;
  }

  int tile = -1, step = 0;

 private:
  DepthSchedule::Walk walk_;
  DepthSchedule::Segment segment_ = {-1, 0, 0};
};

// The loading warpgroup: both operands step by step; the next step's pixels are asked for while
// this one's are copied.
template <typename C>
__device__ __forceinline__ void ProducePixels(const DkernelParams& p, const DepthSchedule& schedule,
                                              typename C::Shared& shared) {
  const int thread = threadIdx.x % kDepthThreads;
  typename C::LoadA taps(p.conv, thread);
  const typename C::LoadB columns(p.gy, p.gy_units, thread);
  DepthPixels pixels(p.pixels, thread);
  DepthSteps steps(schedule, blockIdx.x);
  typename C::Position at;
  int tile = -1, column = 0;
  bool more = steps.Next();
  if (more) pixels.Ask(steps.step);
  while (more) {
    if (steps.tile != tile) {
      tile = steps.tile;
      taps.Aim(tile / p.n_tiles * (C::kTileM / 8));
      column = tile % p.n_tiles * (C::kTileN / 8);
    }
    pixels.Take();
    more = steps.Next();
    if (more) pixels.Ask(steps.step);
    shared.ring.WaitEmpty(at);
    taps.Copy(ptx::SharedAddress(shared.a[at.stage]), pixels.rows);
    columns.Copy(ptx::SharedAddress(shared.b[at.stage]), pixels.rows, column);
    ptx::BarrierArriveAfterCopies(shared.ring.Full(at.stage));
    at.Advance();
  }
}

template <typename C>
__device__ __forceinline__ void MultiplyPixels(DepthMma<C>& mma, typename C::Shared& shared,
                                               typename C::Position& at, int steps) {
  constexpr int kGroupBytes = C::kBlocks * kDepthRows * kRowStepBytes;
  const int group = ptx::WarpgroupIndex(), lane = threadIdx.x % 32;
  int previous = 0;
  mma.Clear();
  for (int step = 0; step < steps; ++step) {
    shared.ring.WaitFull(at);
    ptx::FenceAsyncProxy();
    mma.Multiply(ptx::SharedAddress(shared.a[at.stage]) + group * kGroupBytes,
                 ptx::SharedAddress(shared.b[at.stage]));
    mma.template Retire<1>();
    if (step > 0) shared.ring.Release(previous, lane);
    previous = at.stage;
    at.Advance();
  }
  mma.template Retire<0>();
  shared.ring.Release(previous, lane);
}

// Where a warpgroup's sums go: a finished tile into the gradient, a part into the workspace, in the
// order of fragments.
template <typename C>
class DkernelStore {
 public:
  __device__ explicit DkernelStore(const DkernelParams& p) : p_(p) {}

  __device__ void Part(const DepthMma<C>& mma, int part) const {
    float4* to = reinterpret_cast<float4*>(p_.parts) +
                 static_cast<int64_t>(part) * (C::kTileM * C::kTileN / 4) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < C::kBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < C::kTileN / 8; ++j) {
        const float* v = &mma.acc[i][4 * j];
        __stcg(to + (i * (C::kTileN / 8) + j) * 128 * C::kConsumers,
               make_float4(v[0], v[1], v[2], v[3]));
      }
    }
  }

  __device__ void Tile(const DepthMma<C>& mma, int tile) const {
#pragma unroll
    for (int i = 0; i < C::kBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < C::kTileN / 8; ++j) {
        const float* v = &mma.acc[i][4 * j];
        StoreDkernelSums(p_, tile, i * (C::kTileN / 8) + j, threadIdx.x,
                         make_float4(v[0], v[1], v[2], v[3]));
      }
    }
  }

 private:
  const DkernelParams& p_;
};

template <typename C>
__device__ __forceinline__ void ConsumePixels(const DkernelParams& p, const DepthSchedule& schedule,
                                              typename C::Shared& shared) {
  const DkernelStore<C> store(p);
  DepthSchedule::Walk walk(schedule, blockIdx.x);
  typename C::Position at;
  DepthMma<C> mma;
  for (DepthSchedule::Segment s; walk.Next(&s);) {
    MultiplyPixels<C>(mma, shared, at, s.end - s.begin);
    if (s.begin == 0 && s.end == schedule.steps()) {
      store.Tile(mma, s.tile);
    } else {
      store.Part(mma, DepthSchedule::Part(blockIdx.x, s.tile));
    }
  }
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads, 1)
    MaskedConvDkernelWgmma(const __grid_constant__ DkernelParams p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t raw[];
  const uint32_t skew = (1024 - ptx::SharedAddress(raw) % 1024) % 1024;
  auto& shared = *reinterpret_cast<typename C::Shared*>(raw + skew);
  if (threadIdx.x == 0) shared.ring.Init();
  const DepthSchedule schedule(p.m_tiles * p.n_tiles, DkernelSteps(p.conv.list), p.workers);
  __syncthreads();
  if (ptx::WarpgroupIndex() < C::kConsumers) {
    ptx::RaiseRegisters<C::kMultiplyRegisters>();
    ConsumePixels<C>(p, schedule, shared);
  } else {
    ptx::LowerRegisters<C::kLoadRegisters>();
    ProducePixels<C>(p, schedule, shared);
  }
#endif
}

}  // namespace jaxsparse
