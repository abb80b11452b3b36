// A stack of masked convolutions on Hopper's tensor cores in one launch: layers of equal geometry
// that share a list of blocks of 8 x 8 pixels, each reading what the one before wrote.
//
// Floor:    as wgmma/box.cuh, a layer at a time; the weights of a layer, 72 KB of 64
//           channels, arrive in every multiprocessor (2,000 cycles at the 37 bytes a cycle of TMA).
// Tile:     64 rows, one block, a multiplying warpgroup; 3 warpgroups. A block stays with its
//           warpgroup through all layers, so a block's residual is what its own threads wrote.
// Pipeline: a ring of two boxes a warpgroup, filled by a warp each. The weights of two layers have
//           room: a layer's arrive while the one before is multiplied, and its products start
//           without a wait between them.
// Grid:     cooperative, one CTA a multiprocessor. A layer's boxes are loaded when every CTA has
//           stored the layer before: multiplying warpgroups arrive and go on, only the warps that
//           load wait. What another layer's launch costs (0.9 us), its look-ups (the count, the
//           ids: 3,000 cycles) and its first weights are paid once a stack.
// Predicted: for one block a warpgroup a layer takes the products of a block, 1,200 cycles, its
//           store, 1,000, and two trips through L2 for the wait and the box, 2,500: 2.7 us of the
//           7 that a launch of its own takes.
// Measured (H200, 64 channels, 3x3, bf16, bias, a residual in every second layer, CUDA graph): ten
//           layers of 196 blocks 49.6 us where box64m takes 73.6 layer by layer; 576 blocks 92.6
//           and 157.5; 4,096 (a full mask) 613 and 796, box64 730. Two layers of 32 channels: 20.2
//           where box64 takes 21.7 (484 blocks), 48.5 and 54.5 (1,764). By the clock of one block,
//           in a form with one chain of products and a branch for every element of the epilogue (64
//           us): products 3,700 cycles, 85 to 100 each where the tensor cores work for 32, store
//           3,600, the last warp's store 650, all CTAs' 1,850, the box 1,150.
#pragma once

#include <cooperative_groups.h>

#include "cuda/core/async_copy.cuh"
#include "cuda/core/warpgroup.cuh"
#include "cuda/kernels/masked_conv/stack/launch.h"
#include "cuda/kernels/masked_conv/stack/store.cuh"
#include "cuda/tile/conv/block_rows.cuh"
#include "cuda/tile/load/weights.cuh"
#include "cuda/tile/mma/tiles.cuh"
#include "cuda/tile/pipeline.cuh"

namespace jaxsparse {
namespace ptx {

// Orders what ordinary accesses and TMA do in global memory.
__device__ __forceinline__ void FenceGlobalProxy() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

}  // namespace ptx

// The parameters of the kernel; conv[0] is that of the list, too.
struct StackParams {
  int layers, channels;
  uint32_t* done;  // [layers]: how many CTAs have stored a layer
  ConvParams conv[kMaxStack];
  CUtensorMap image[kMaxStack], weights[kMaxStack];
  BoxPlan plan;
};

template <typename Element>
struct StackConfig {
  using T = Element;
  static constexpr int kGroups = 3;  // multiplying warpgroups
  static constexpr int kThreads = 128 * (kGroups + 1);
  static constexpr int kBoxes = 2;
  static constexpr int kMostSteps = 9;
  static constexpr int kColumns = 64;

  using BoxRing = Pipeline<kBoxes, 0, 4, 1>;
  using Weights = WeightLoad<T, kColumns, 1>;
  using Mma = TileMma<T, 1, kColumns, kBoxBytes>;

  struct alignas(1024) Shared {
    uint8_t boxes[kGroups][kBoxes][kBoxBytes];
    uint8_t weights[2][kMostSteps][Weights::kBytes];
    BoxRing ring[kGroups];
    uint64_t landed[2][kMostSteps];                 // weights of a step
    uint64_t stored;                                // a layer, by every multiplying warp
    uint64_t open;                                  // a layer, by every CTA
    alignas(16) float bias[4 * kGroups][kColumns];  // of a layer, for each multiplying warp
  };
  static constexpr int kSharedBytes = sizeof(Shared) + 1024;  // room to align
  static_assert(kSharedBytes <= 227 * 1024, "the weights of two layers do not fit");
};

// The blocks of warpgroup `group` of this CTA: few blocks spread over all CTAs first.
struct GroupBlocks {
  int first, step, stop;

  __device__ GroupBlocks(const BlockRows<false>& rows, int groups, int group)
      : first(blockIdx.x + gridDim.x * group),
        step(gridDim.x * groups),
        stop(rows.rows() / kBlockRows) {}

  // How many CTAs have blocks (the first ones), and how many warpgroups of this CTA.
  __device__ uint32_t busy_ctas() const { return min(static_cast<int>(gridDim.x), stop); }
  __device__ int busy_groups() const {
    const int blocks = stop - static_cast<int>(blockIdx.x), ctas = gridDim.x;
    return min(max(blocks + ctas - 1, 0) / ctas, step / ctas);
  }
};

// Until each of `ctas` CTAs has stored a layer; then its pixels may be loaded by TMA. One thread a
// CTA asks: more would queue at the one line that they ask for.
__device__ __forceinline__ void WaitForAll(const uint32_t* done, uint32_t ctas) {
  uint32_t seen;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(done) : "memory");
  } while (seen < ctas);
  ptx::FenceGlobalProxy();
}

// What is known of a warpgroup's first blocks through all layers, and looked up of others.
template <class Found>
struct FirstTwo {
  Found found[2];

  template <class Find>
  __device__ FirstTwo(const GroupBlocks& blocks, const Find& find)
      : found{find(blocks.first), find(blocks.first + blocks.step)} {}

  template <class Find>
  __device__ Found At(const GroupBlocks& blocks, int block, const Find& find) const {
    if (block == blocks.first) return found[0];
    return block == blocks.first + blocks.step ? found[1] : find(block);
  }
};

// One lane: the boxes of a warpgroup, layer after layer.
template <typename C>
__device__ __forceinline__ void LoadStackBoxes(const StackParams& p, typename C::Shared& shared,
                                               const BlockRows<false>& rows,
                                               const GroupBlocks& blocks, int group,
                                               const FirstTwo<OutputPixel>& origins) {
  if (blocks.first >= blocks.stop) return;
  auto& ring = shared.ring[group];
  RingPosition<C::kBoxes> at;
  for (int layer = 0; layer < p.layers; ++layer) {
    if (layer > 0) {
      ptx::BarrierWait(ptx::SharedAddress(&shared.open), (layer - 1) % 2);
      ptx::FenceGlobalProxy();
    }
    for (int block = blocks.first; block < blocks.stop; block += blocks.step, at.Advance()) {
      const OutputPixel first = origins.At(blocks, block, [&](int b) { return rows.Origin(b); });
      const uint32_t full = ring.Full(at.stage);
      ring.WaitEmpty(at);
      if (!first.active || first.y >= p.conv[0].out_h || first.x >= p.conv[0].out_w) {
        ptx::BarrierArrive(full);  // its rows are never stored
        continue;
      }
      ptx::BarrierArriveExpect(full, p.plan.bytes);
      ptx::LoadImageBox(ptx::SharedAddress(shared.boxes[group][at.stage]), &p.image[layer], 0,
                        first.x - p.conv[0].pad_left, first.y - p.conv[0].pad_top, first.b, full);
    }
  }
}

// Starts a layer's weights on their way. A stage holds 128 bytes of K; where pixels have 64 bytes,
// the second half of it is not used.
template <typename C>
__device__ __forceinline__ void LoadStackWeights(const StackParams& p, typename C::Shared& shared,
                                                 int layer) {
  const typename C::Weights weights(&p.weights[layer], 0);
  for (int step = 0; step < p.plan.k_steps; ++step) {
    const uint32_t full = ptx::SharedAddress(&shared.landed[layer % 2][step]);
    ptx::BarrierArriveExpect(full, C::Weights::kBytes);
    weights.template Load<1>(ptx::SharedAddress(shared.weights[layer % 2][step]), 0,
                             p.plan.steps[step].tap * p.channels, full, 0);
  }
}

template <typename C>
__device__ __forceinline__ void WaitForWeights(const StackParams& p, typename C::Shared& shared,
                                               int layer) {
  for (int step = 0; step < p.plan.k_steps; ++step) {
    ptx::BarrierWait(ptx::SharedAddress(&shared.landed[layer % 2][step]), layer / 2 % 2);
  }
}

// One lane: says when this CTA has stored a layer, waits until all have, lets the boxes of the next
// one go, and behind them the weights that take the place of the layer's. Those of the first two
// layers are on their way; a CTA without blocks waits for no more than these.
template <typename C>
__device__ __forceinline__ void FollowStack(const StackParams& p, typename C::Shared& shared,
                                            const GroupBlocks& blocks) {
  const uint32_t stored = ptx::SharedAddress(&shared.stored);
  if (blocks.busy_groups() == 0) {
    for (int layer = 0; layer < min(p.layers, 2); ++layer) WaitForWeights<C>(p, shared, layer);
    return;
  }
  for (int layer = 0; layer + 1 < p.layers; ++layer) {
    ptx::BarrierWait(stored, layer % 2);
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(p.done + layer) : "memory");
    WaitForAll(p.done + layer, blocks.busy_ctas());
    ptx::BarrierArrive(ptx::SharedAddress(&shared.open));
    WaitForWeights<C>(p, shared, layer);  // also where no block needed them
    if (layer + 2 < p.layers) LoadStackWeights<C>(p, shared, layer + 2);
  }
  WaitForWeights<C>(p, shared, p.layers - 1);
}

// Where this thread's two rows of a block are stored: see TileMma::acc.
struct RowPixels {
  int at[2];

  RowPixels() = default;
  __device__ RowPixels(const BlockRows<false>& rows, int block) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const BlockRows<false>::Line line = rows.Find(block * kBlockSide + 2 * warp + h);
      at[h] = line.bits >> (lane / 4) & 1 ? line.pixel + lane / 4 : -1;
    }
  }
};

// The products of one step of a block.
template <typename C>
__device__ __forceinline__ void MultiplyStep(const StackParams& p, typename C::Shared& shared,
                                             typename C::Mma& mma, uint32_t box, int layer,
                                             int step) {
  ptx::BarrierWait(ptx::SharedAddress(&shared.landed[layer % 2][step]), layer / 2 % 2);
  const uint32_t a = box + p.plan.steps[step].shift * kUnitBytes;
  const uint32_t b = ptx::SharedAddress(shared.weights[layer % 2][step]);
  if (p.plan.row_bytes == kNarrowRowBytes) {
    mma.template Multiply<kNarrowRowBytes>(a, b, p.plan.line_bytes);
  } else {
    mma.Multiply(a, b, p.plan.line_bytes);
  }
}

// Those of a block in one layer, into the sum of two chains: a product of 64 columns takes three
// times as long as the tensor cores work on it, and one that adds to it waits for it.
template <typename C>
__device__ __forceinline__ void MultiplyBlock(const StackParams& p, typename C::Shared& shared,
                                              typename C::Mma& even, typename C::Mma& odd,
                                              uint32_t box, int layer) {
  even.Clear();
  odd.Clear();
#pragma unroll
  for (int i = 0; i < C::kColumns / 2; ++i) even.acc[0][i] = odd.acc[0][i] = 0.0f;
  for (int step = 0; step < p.plan.k_steps; step += 2) {
    MultiplyStep<C>(p, shared, even, box, layer, step);
    if (step + 1 < p.plan.k_steps) MultiplyStep<C>(p, shared, odd, box, layer, step + 1);
  }
  even.template Retire<0>();
  odd.template Retire<0>();
#pragma unroll
  for (int i = 0; i < C::kColumns / 2; ++i) even.acc[0][i] += odd.acc[0][i];
}

// A multiplying warpgroup: its blocks, layer after layer.
template <typename C>
__device__ __forceinline__ void MultiplyStack(const StackParams& p, typename C::Shared& shared,
                                              const BlockRows<false>& rows,
                                              const GroupBlocks& blocks, int group,
                                              const FirstTwo<RowPixels>& own) {
  if (blocks.first >= blocks.stop) return;  // FollowStack does not wait for it
  auto& ring = shared.ring[group];
  const int lane = threadIdx.x % 32;
  RingPosition<C::kBoxes> at;
  typename C::Mma even, odd;
  for (int layer = 0; layer < p.layers; ++layer) {
    StackStore<typename C::T> store(p.conv[layer], shared.bias[threadIdx.x / 32]);
    for (int block = blocks.first; block < blocks.stop; block += blocks.step, at.Advance()) {
      const RowPixels pixels = own.At(blocks, block, [&](int b) { return RowPixels(rows, b); });
      store.Begin(pixels.at);
      ring.WaitFull(at);
      MultiplyBlock<C>(p, shared, even, odd, ptx::SharedAddress(shared.boxes[group][at.stage]),
                       layer);
      ring.Release(at.stage, lane);
      store.Store(even.acc[0], pixels.at);
    }
    ptx::FenceGlobalProxy();
    __syncwarp();
    if (lane == 0) ptx::BarrierArrive(ptx::SharedAddress(&shared.stored));
  }
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads, 1)
    MaskedConvStackKernel(const __grid_constant__ StackParams p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t raw[];
  const uint32_t skew = (1024 - ptx::SharedAddress(raw) % 1024) % 1024;
  auto& shared = *reinterpret_cast<typename C::Shared*>(raw + skew);
  const int warp = ptx::WarpIndex() - 4 * C::kGroups, lane = threadIdx.x % 32;
  if (warp == C::kGroups && lane == 0) {
    for (auto& ring : shared.ring) ring.Init();
    for (auto& buffer : shared.landed) {
      for (auto& full : buffer) ptx::BarrierInit(ptx::SharedAddress(&full), 1);
    }
    ptx::FenceBarrierInit();
    for (int layer = 0; layer < min(p.layers, 2); ++layer) LoadStackWeights<C>(p, shared, layer);
    if (blockIdx.x == 0) {
      for (int layer = 0; layer < p.layers; ++layer) p.done[layer] = 0;
    }
  }
  const BlockRows<false> rows(p.conv[0], p.conv[0].list);
  const int group = warp < 0 ? ptx::WarpgroupIndex() : min(warp, C::kGroups - 1);
  const GroupBlocks blocks(rows, C::kGroups, group);
  if (warp < 0) {
    const FirstTwo<RowPixels> own(blocks, [&](int b) { return RowPixels(rows, b); });
    cooperative_groups::this_grid().sync();  // `done` is zero, and the barriers are there
    MultiplyStack<C>(p, shared, rows, blocks, group, own);
  } else {
    const FirstTwo<OutputPixel> origins(blocks, [&](int b) { return rows.Origin(b); });
    if (warp == C::kGroups && lane == 0 && blocks.busy_groups() > 0) {
      ptx::BarrierInit(ptx::SharedAddress(&shared.stored), 4 * blocks.busy_groups());
      ptx::BarrierInit(ptx::SharedAddress(&shared.open), 1);
    }
    cooperative_groups::this_grid().sync();
    if (lane != 0) return;
    if (warp == C::kGroups) {
      FollowStack<C>(p, shared, blocks);
    } else {
      LoadStackBoxes<C>(p, shared, rows, blocks, group, origins);
    }
  }
#endif
}

}  // namespace jaxsparse
