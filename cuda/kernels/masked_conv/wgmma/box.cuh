// Masked convolution on Hopper's tensor cores, blocks of 8 x 8 output pixels: TMA boxes -> dense
// wgmma tile -> scatter-store, over a device-side list of tiles whose sides are multiples of 8.
//
// Floor:    as kernel.cuh; rows are 64 a block that has an active pixel.
// Tile:     tile_m / 64 blocks x tile_n output channels, K in steps of 128 bytes.
// Pipeline: two rings of boxes, one a multiplying warpgroup, each filled by its own warp, and a
//           ring of weights for both. A box is read by every tap that it serves. Weights that fit
//           into their ring (64 channels, 3x3) are loaded once a CTA; then the warpgroups drift
//           apart, and one stores while the other multiplies.
// Predicted: 3x3 reads 1.6 input pixels an output pixel where the gather reads 9; a step of
//           128x256x64 brings 34 KB instead of 48 into shared memory. A step of 256x64x64 reads 64
//           KB of shared memory in 512 tensor-core cycles: its limit is shared memory's width.
//           Pixels of 64 bytes (32 channels) have boxes of their own width, and steps of one tap.
// Measured (H200, 3x3, bf16, full mask): 753 TFLOP/s at 256 -> 256 channels (8x128x128; 95 % of
//           the floor), 594 at 128 (256x256), 417 at 64 (64x56x56) where the gather has 715, 422
//           and 230. With 64 channels that is half of the floor of operations; a warp for each
//           warpgroup's boxes gave 5 to 10 %. Its profile (1024x1024, density .3): tensor cores 57
//           % of the time, the pipe of shared memory 61 to 64 %, L2 32 %, DRAM 23 %. A product of
//           64 columns reads as many cycles of shared memory as it multiplies: neither can be full.
// Grid:     persistent, one CTA a multiprocessor.
#pragma once

#include "cuda/kernels/masked_conv/wgmma/kernel.cuh"
#include "cuda/tile/load/box.cuh"

namespace jaxsparse {

template <typename Element, int M, int N, int StageCount, int StreamFlag, bool Plain = false>
struct BoxConvConfig {
  using T = Element;
  static constexpr bool kPlain = Plain;
  static constexpr Stores kStores = Plain ? Stores::kPlain : Stores::kEach;
  static constexpr int kTileM = M, kTileN = N, kStages = StageCount;
  static constexpr int kCluster = 1, kSplitK = 1;
  static constexpr bool kStreamK = StreamFlag != 0;
  static constexpr int kConsumers = 2;
  static constexpr int kBlocks = kTileM / kBlockRows / kConsumers;  // of each
  static constexpr int kThreads = kConvThreads;
  static constexpr bool kBox = true;
  static constexpr int kMultiplyRegisters = 224, kLoadRegisters = 56;
  static constexpr int kBoxes = 2;       // boxes of a block under way
  static constexpr int kPixelSlots = 4;  // tiles whose pixels are looked up

  using BoxRing = Pipeline<kBoxes, kBlocks - 1, 4, 1>;
  using WeightRing = Pipeline<kStages, 0, 4 * kConsumers, 1>;
  using PixelRing = Pipeline<kPixelSlots, 32 - 1, 4 * kConsumers, 1>;
  using Weights = WeightLoad<T, kTileN, 1>;
  using Mma = TileMma<T, kBlocks, kTileN, kBoxBytes>;
  using Schedule = TileSchedule<kTileM, kTileN, 1, 1, kStreamK>;
  using Partial = PartialTile<kBlocks, kTileN>;
  using Fill = UnsetFill<(kTileN >= 256)>;

  struct alignas(1024) Shared {
    uint8_t boxes[kConsumers][kBoxes][kBlocks][kBoxBytes];
    uint8_t b[kStages][Weights::kBytes];
    BoxRing box_ring[kConsumers];
    WeightRing weight_ring;
    PixelRing pixel_ring;
    alignas(16) int32_t pixels[kPixelSlots][kTileM];
    typename Fill::Shared zeros;
    TradeRoom<T, true> trade;
  };
  static constexpr int kSharedBytes = sizeof(Shared) + 1024;  // room to align
  static_assert(kSharedBytes <= 227 * 1024, "the stages do not fit in shared memory");
};

// What a CTA works on; the members are parameters of the kernel, the list of `rows` may be shared
// memory.
template <bool Plain>
struct BoxConv {
  using Rows = BlockRows<Plain>;

  const ConvParams& p;
  const BoxPlan& plan;
  const CUtensorMap &weights, &image;
  Rows rows;

  __device__ int taps() const { return p.kernel_h * p.kernel_w; }

  // The channel slab and the place among the taps of K step `step`.
  __device__ void Locate(int step, int* slab, int* place) const {
    *slab = step == 0 ? 0 : step / taps();  // mostly, and a division takes long
    *place = step - *slab * taps();
  }
};

// Whether the weights stay where they were loaded first.
template <typename C>
__device__ __forceinline__ bool WeightsStay(const ConvParams& p, const BoxPlan& plan) {
  return plan.k_steps <= C::kStages && p.out_c <= C::kTileN;
}

// The block of M tile `m_tile` that lane `lane` of warp `group` loads.
template <typename C>
__device__ __forceinline__ int BlockOf(int m_tile, int group, int lane) {
  return (m_tile * C::kConsumers + group) * C::kBlocks + lane;
}

// Lanes of one warp: the boxes of a multiplying warpgroup, one lane a block. `load` stands at the
// first one, but for streamed tiles.
template <typename C>
__device__ __forceinline__ void LoadBoxes(const BoxConv<C::kPlain>& conv,
                                          typename C::Shared& shared, BoxLoad& load,
                                          typename C::Schedule schedule, int group) {
  const int block = ptx::ThreadIndex() % 32;
  if (block >= C::kBlocks) return;
  RingPosition<C::kBoxes> at;
  Segment s;
  for (bool begun = !C::kStreamK; schedule.Next(&s); begun = false) {
    if (!begun) load.Begin(conv.rows, BlockOf<C>(s.m_tile, group, block));
    int slab, place;
    conv.Locate(s.begin, &slab, &place);
#pragma unroll 1
    for (int step = s.begin; step < s.end; ++step) {
      const BoxStep& plan = conv.plan.steps[place];
      if (step == s.begin || plan.opens) {
        shared.box_ring[group].WaitEmpty(at);
        load.Load(ptx::SharedAddress(shared.boxes[group][at.stage][block]), plan, slab,
                  shared.box_ring[group].Full(at.stage));
        at.Advance();
      }
      if (++place == conv.taps()) place = 0, ++slab;
    }
  }
}

// One thread: the weights of every step. A stage holds 128 bytes of K; where pixels have 64 bytes,
// the second half of it is not used.
template <typename C>
__device__ __forceinline__ void LoadWeights(const BoxConv<C::kPlain>& conv,
                                            typename C::Shared& shared,
                                            typename C::Schedule schedule) {
  constexpr int kBytes = DTypeTraits<typename C::T>::kBytes;
  const typename C::Weights weights(&conv.weights, 0);
  const bool stay = WeightsStay<C>(conv.p, conv.plan);
  const int elements = conv.plan.row_bytes / kBytes;
  const int channels = conv.p.pixel_units * (kUnitBytes / kBytes);
  RingPosition<C::kStages> at;
  Segment s;
  while (schedule.Next(&s)) {
    if (stay) s.begin = 0, s.end = conv.plan.k_steps;
    int slab, place;
    conv.Locate(s.begin, &slab, &place);
#pragma unroll 1
    for (int step = s.begin; step < s.end; ++step) {
      const uint32_t full = shared.weight_ring.Full(at.stage);
      shared.weight_ring.WaitEmpty(at);
      ptx::BarrierArriveExpect(full, C::Weights::kBytes);
      weights.template Load<1>(ptx::SharedAddress(shared.b[at.stage]), s.n_tile * C::kTileN,
                               conv.plan.steps[place].tap * channels + slab * elements, full, 0);
      at.Advance();
      if (++place == conv.taps()) place = 0, ++slab;
    }
    if (!stay) continue;
    // Also the steps that no segment of this CTA takes must land before it ends.
#pragma unroll 1
    for (int i = 0; i < s.end; ++i) ptx::BarrierWait(shared.weight_ring.Full(i), 0);
    return;
  }
}

// One warp: where the rows of each tile are stored. A lane looks up lines of 8 pixels.
template <typename C>
__device__ __forceinline__ void LookUpPixels(const BoxConv<C::kPlain>& conv,
                                             typename C::Shared& shared,
                                             typename C::Schedule schedule) {
  constexpr int kLines = C::kTileM / kBlockSide;
  const int lane = ptx::ThreadIndex() % 32;
  RingPosition<C::kPixelSlots> at;
  Segment s;
  for (; schedule.Next(&s); at.Advance()) {
    shared.pixel_ring.WaitEmpty(at);
#pragma unroll 1
    for (int i = lane; i < kLines; i += 32) {
      const auto line = conv.rows.Find(s.m_tile * kLines + i);
      int32_t* pixels = shared.pixels[at.stage] + i * kBlockSide;
#pragma unroll
      for (int x = 0; x < kBlockSide; ++x) pixels[x] = line.bits >> x & 1 ? line.pixel + x : -1;
    }
    ptx::BarrierArrive(shared.pixel_ring.Full(at.stage));
  }
}

// A multiplying warpgroup's view of the two rings of operands; a pixel's row has `RowBytes` bytes.
template <typename C, int RowBytes>
struct BoxOperands {
  const BoxConv<C::kPlain>& conv;
  typename C::Shared& shared;
  const int group, lane;
  const bool stay;
  typename C::Fill fill;
  RingPosition<C::kBoxes> box = {};
  RingPosition<C::kStages> weight = {};

  // One segment's steps through the tensor cores; the last operands are free when it returns.
  __device__ void Multiply(typename C::Mma& mma, const Segment& s) {
    int slab, place;
    conv.Locate(s.begin, &slab, &place);
    mma.Clear();
    for (int step = s.begin; step < s.end; ++step) {
      const BoxStep& plan = conv.plan.steps[place];
      const bool opens = step > s.begin && plan.opens;
      const int last_box = box.stage, last_weight = weight.stage;
      if (step > s.begin) AdvanceWeight();
      if (opens) box.Advance();
      if (opens || step == s.begin) shared.box_ring[group].WaitFull(box);
      if (stay) weight.stage = step;
      shared.weight_ring.WaitFull(weight);
      Start(mma, plan);
      fill.Step();
      mma.template Retire<1>();
      if (step > s.begin) ReleaseWeight(last_weight);
      if (opens) shared.box_ring[group].Release(last_box, lane);
      if (++place == conv.taps()) place = 0;
    }
    mma.template Retire<0>();
    ReleaseWeight(weight.stage);
    shared.box_ring[group].Release(box.stage, lane);
    AdvanceWeight();
    box.Advance();
  }

 private:
  // Starts the products of one step with the operands that the rings stand at.
  __device__ void Start(typename C::Mma& mma, const BoxStep& step) {
    const uint32_t a = ptx::SharedAddress(shared.boxes[group][box.stage]) + step.shift * kUnitBytes;
    const uint32_t b = ptx::SharedAddress(shared.b[weight.stage]);
    mma.template Multiply<RowBytes>(a, b, conv.plan.line_bytes);
  }
  __device__ void AdvanceWeight() {
    if (!stay) weight.Advance();
  }
  __device__ void ReleaseWeight(int stage) {
    if (!stay) shared.weight_ring.Release(stage, lane);
  }
};

template <typename C, int RowBytes>
__device__ __forceinline__ void MultiplyBoxes(const BoxConv<C::kPlain>& conv,
                                              typename C::Shared& shared,
                                              typename C::Schedule schedule) {
  const int lane = ptx::ThreadIndex() % 32;
  BoxOperands<C, RowBytes> operands{
      conv,
      shared,
      ptx::WarpgroupIndex(),
      lane,
      WeightsStay<C>(conv.p, conv.plan),
      typename C::Fill(conv.p, shared.zeros, lane, schedule.steps(), schedule.Spare())};
  const typename C::Partial partial(conv.p);
  typename C::Mma mma;
  RingPosition<C::kPixelSlots> at;
  Segment s;
  for (; schedule.Next(&s); at.Advance()) {
    operands.Multiply(mma, s);
    shared.pixel_ring.WaitFull(at);
    if (C::kStreamK && s.begin > 0) {
      partial.Put(mma.acc, blockIdx.x);
    } else {
      if (C::kStreamK && schedule.Unfinished(s)) {
        for (int i = 1; schedule.Shares(s, i); ++i) {
          partial.Add(mma.acc, blockIdx.x - i);
        }
      }
      StoreTile<C>(conv.p, shared, mma, s.n_tile * C::kTileN, shared.pixels[at.stage]);
    }
    __syncwarp();
    shared.pixel_ring.Release(at.stage, lane);
  }
  operands.fill.Finish();
}

// A CTA's whole work as variant C: see RunMaskedConv.
template <typename C>
__device__ __forceinline__ void RunBoxConv(const ConvParams& p, const RowList& list,
                                           const BoxPlan& plan, const CUtensorMap& weights,
                                           const CUtensorMap& image, uint8_t* raw) {
  const uint32_t skew = (1024 - ptx::SharedAddress(raw) % 1024) % 1024;
  auto& shared = *reinterpret_cast<typename C::Shared*>(raw + skew);
  const BoxConv<C::kPlain> conv{p, plan, weights, image, BlockRows<C::kPlain>(p, list)};
  const int n_tiles = (p.out_c + C::kTileN - 1) / C::kTileN;
  const int warp = ptx::WarpIndex() - 4 * C::kConsumers;  // of the loading ones
  if (warp < 0) {
    if (threadIdx.x == 0) {
      ptx::PrefetchTensorMap(&weights);
      ptx::PrefetchTensorMap(&image);
      for (auto& ring : shared.box_ring) ring.Init();
      shared.weight_ring.Init();
      shared.pixel_ring.Init();
    }
    shared.zeros.ClearStrip(threadIdx.x);
    __syncwarp();
    ptx::NamedBarrierArrive(kStartBarrier, C::kThreads);
    ptx::NamedBarrier(kMultiplyBarrier, kConsumerThreads);
    ptx::RaiseRegisters<C::kMultiplyRegisters>();
    const typename C::Schedule schedule(plan.k_steps, conv.rows.rows(), n_tiles, 0);
    if (DTypeTraits<typename C::T>::kBytes == 2 && plan.row_bytes == kNarrowRowBytes) {
      MultiplyBoxes<C, kNarrowRowBytes>(conv, shared, schedule);
    } else {
      MultiplyBoxes<C, kBoxRowBytes>(conv, shared, schedule);
    }
    return;
  }
  ptx::LowerRegisters<C::kLoadRegisters>();
  BoxLoad load(p, plan, &image, plan.row_bytes / DTypeTraits<typename C::T>::kBytes);
  if (!C::kStreamK && warp < C::kConsumers) {  // while the count is on its way
    load.Begin(conv.rows, BlockOf<C>(C::Schedule::FirstTile(n_tiles, 0), warp, threadIdx.x % 32));
  }
  __syncwarp();
  ptx::NamedBarrier(kStartBarrier, C::kThreads);
  const typename C::Schedule schedule(plan.k_steps, conv.rows.rows(), n_tiles, 0);
  if (warp < C::kConsumers) {
    LoadBoxes<C>(conv, shared, load, schedule, warp);
  } else if (warp == C::kConsumers) {
    if (threadIdx.x % 32 == 0) LoadWeights<C>(conv, shared, schedule);
  } else {
    LookUpPixels<C>(conv, shared, schedule);
  }
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads, 1)
    MaskedConvBoxKernel(const __grid_constant__ ConvParams p, const __grid_constant__ BoxPlan plan,
                        const __grid_constant__ CUtensorMap weights,
                        const __grid_constant__ CUtensorMap image) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t raw[];
  RunBoxConv<C>(p, p.list, plan, weights, image, raw);
#endif
}

}  // namespace jaxsparse
