// Masked convolution on Hopper's tensor cores: gather-load -> dense wgmma tile -> scatter-store,
// over a device-side list.
//
// Floor:    2 * rows * taps * C * O operations at 790 TFLOP/s (bf16, fp16) or 414 (TF32); rows are
//           the active pixels.
// Tile:     tile_m condensed pixels x tile_n output channels, K in steps of 128 bytes.
// Pipeline: one warpgroup gathers A (cp.async), starts B (TMA) and looks up the next tile's rows on
//           the side; two multiply; `stages` stages. The multiplying warps also write the zeros of
//           a result without a base (UnsetFill).
// Predicted: a step of 128x256x64 keeps the tensor cores busy for 1024 cycles and moves 48 KB into
//           shared memory; 32 warp-wide copies of 512 bytes gather A.
// Measured (H200, 3x3, 256 -> 256 channels, bf16): about 1310 cycles a step, 715 TFLOP/s on 131072
//           rows, 90 % of the floor. Its copies and products move 128 KiB of shared memory, 1024
//           cycles at full width, and 48 KiB from L2, which gives a multiprocessor 34 to 40 bytes a
//           cycle where all 132 read. Tiles of 128 and 64 columns (512 and 256 cycles of tensor
//           core) take 700 to 800 then, and 510 and 400 where few multiprocessors read, which is
//           what 32 and 24 KiB need at 64 bytes a cycle. Two CTAs that share
//           the weights take 4 to 30 % less time; a step a warp instead of all warps a step is no
//           faster. Zeros for 70 % of 67 MB cost
//           3 us of 85 beside the products, and 15 us in a kernel of their own.
// Grid:     persistent, one CTA a multiprocessor.
#pragma once

#include <cuda_runtime_api.h>

#include <type_traits>

#include "cuda/core/dtype.cuh"
#include "cuda/core/warpgroup.cuh"
#include "cuda/kernels/masked_conv/wgmma/variant.h"
#include "cuda/tile/conv/partial_tile.cuh"
#include "cuda/tile/conv/schedule.cuh"
#include "cuda/tile/load/gather.cuh"
#include "cuda/tile/load/weights.cuh"
#include "cuda/tile/mma/tiles.cuh"
#include "cuda/tile/pipeline.cuh"
#include "cuda/tile/store/cluster_reduce.cuh"
#include "cuda/tile/store/scatter.cuh"
#include "cuda/tile/store/unset_fill.cuh"

namespace jaxsparse {

// The loading warps wait at the first for what the others lay out, who only pass; the others meet
// at the second, and prepare themselves while the first rows are looked up.
inline constexpr int kStartBarrier = 2, kMultiplyBarrier = 3;
inline constexpr int kConvThreads = 3 * 128;  // of every CTA: two warpgroups multiply, one loads

// Where the multiplying warps exchange columns of 16-bit results, if they store their own tiles.
template <typename T, bool Stores>
struct TradeRoom {
  alignas(128) uint8_t of[kConsumerWarps][MatrixTrade::kBytes];
  using Trade = MatrixTrade;
  __device__ Trade Make() const { return Trade(ptx::SharedAddress(of)); }
};
struct NoTradeRoom {
  using Trade = QuadTrade;
  __device__ Trade Make() const { return {}; }
};
template <typename T>
struct TradeRoom<T, false> : NoTradeRoom {};
template <>
struct TradeRoom<TF32, true> : NoTradeRoom {};

// `Plain`: of calls of one kind only, which IsPlainCall tells: what most are, in less code.
template <typename Element, int M, int N, int StageCount, int ClusterSize, int SplitParts,
          int StreamFlag, bool Plain = false>
struct MaskedConvConfig {
  using T = Element;
  static constexpr bool kPlain = Plain;
  static constexpr Stores kStores = Plain ? Stores::kPlain : Stores::kEach;
  static constexpr int kTileM = M, kTileN = N, kStages = StageCount;
  static constexpr int kCluster = ClusterSize, kSplitK = SplitParts;
  static constexpr bool kStreamK = StreamFlag != 0;
  static constexpr int kConsumers = 2;                      // multiplying warpgroups
  static constexpr int kBlocks = kTileM / 64 / kConsumers;  // 64-row blocks of each
  static constexpr int kThreads = kConvThreads;
  static constexpr bool kBox = false;
  static constexpr int kMultiplyRegisters = 200, kLoadRegisters = 104;
  static constexpr int kPixelSlots =
      kStages + 3;  // tiles between the one that is looked up and the oldest unstored
  static_assert(kTileM == 128 || kTileM == 256, "tile_m must be 128 or 256");
  static_assert(kSplitK == 1 || kBlocks == 1, "split_k needs tile_m = 128");
  static_assert(kConsumerThreads >= kMaxTaps, "FillOffsets");

  using Ring = Pipeline<kStages, kGatherThreads, 4 * kConsumers, kCluster>;
  using Position = RingPosition<kStages>;
  // Beside 256 columns of 16 bits the shorter look-up is the slower one: ptxas then lays the copies
  // out one behind the other, on one predicate.
  static constexpr bool kLongLookUp = kTileN >= 256 && DTypeTraits<T>::kBytes == 2;
  using Gather = GatherLoad<kTileM, (kTileN >= 256), (kPlain && !kLongLookUp)>;
  using Weights = WeightLoad<T, kTileN, kCluster>;
  using Mma = TileMma<T, kBlocks, kTileN>;
  using Reduce = ClusterReduce<kTileM, kTileN, kSplitK, 128 * kConsumers>;
  using Schedule = TileSchedule<kTileM, kTileN, kCluster, kSplitK, kStreamK>;
  using Partial = PartialTile<kBlocks, kTileN>;
  using Fill = UnsetFill<(kTileN >= 256)>;
  struct NoReduce {};

  struct alignas(1024) Shared {
    uint8_t a[kStages][kTileM * kRowBytes];
    uint8_t b[kStages][Weights::kBytes];
    std::conditional_t<(kSplitK > 1), Reduce, NoReduce> reduce;
    Ring ring;
    RowTable<kTileM> rows;
    int32_t pixels[kPixelSlots][kTileM];
    typename Fill::Shared zeros;
    TradeRoom<T, (kSplitK == 1)> trade;
  };
  static constexpr int kSharedBytes = sizeof(Shared) + 1024;  // room to align
  static_assert(kSharedBytes <= 227 * 1024, "the stages do not fit in shared memory");
};

// The loading warpgroup: A and B stage by stage. `gather` has looked up the rows of the first tile,
// but for streamed ones.
template <typename C>
__device__ __forceinline__ void Produce(const CUtensorMap* map, typename C::Shared& shared,
                                        const typename C::Gather::Rows& rows,
                                        typename C::Gather& gather, typename C::Schedule schedule,
                                        int rank) {
  constexpr int kWarps = kGatherThreads / 32;
  const int thread = ptx::ThreadIndex() % kGatherThreads;
  const typename C::Weights weights(map, C::kSplitK == 1 ? rank : 0);
  typename C::Position at;
  Segment s, next;
  int slot = 0;
  // The warps take turns to load the weights: 0 announces them, too.
  uint32_t turn = ptx::WarpIndex() % kWarps;
  bool more = schedule.Next(&next);
  if (C::kStreamK && more) {
    gather.Announce(next.m_tile, shared.pixels[slot]);
    gather.Finish(rows);
  }
  while (more) {
    s = next;
    const int column = s.n_tile * C::kTileN;
    gather.Begin(s.begin);
    more = schedule.Next(&next);
    slot = slot + 1 == C::kPixelSlots ? 0 : slot + 1;
    if (more) gather.Announce(next.m_tile, shared.pixels[slot]);
    // The three steps of the look-up lie apart, so that what one loads has come when the next one
    // needs it.
    const int apart = max((s.end - s.begin) / 3, 1);
    for (int step = s.begin, look = s.begin; step < s.end; ++step) {
      const uint32_t full = shared.ring.Full(at.stage);
      shared.ring.WaitEmpty(at);
      gather.Copy(ptx::SharedAddress(shared.a[at.stage]));
      ptx::BarrierArriveAfterCopies(full);
      if (thread % 32 == 0 && turn < C::Weights::kTileBlocks) {
        if (turn == 0) ptx::BarrierArriveExpect(full, C::Weights::kBytes);
        const int k = gather.unit() * (kUnitBytes / DTypeTraits<typename C::T>::kBytes);
        weights.template Load<kWarps>(ptx::SharedAddress(shared.b[at.stage]), column, k, full,
                                      static_cast<int>(turn));
      }
      turn = (turn + 1) % kWarps;
      gather.Advance();
      at.Advance();
      if (step != look && step + 1 != s.end) continue;
      look += apart;
      do {
        gather.LookUp(rows);
      } while (step + 1 == s.end && !gather.Found());
    }
    if constexpr (C::kSplitK > 1) {  // the two meetings of ClusterReduce
      __syncwarp();
      ptx::ClusterSync();
      ptx::ClusterSync();
    }
  }
}

// One segment's stages through the tensor cores; the last operands are free when it returns.
template <typename C>
__device__ __forceinline__ void MultiplySegment(typename C::Mma& mma, typename C::Shared& shared,
                                                typename C::Position& at, typename C::Fill& fill,
                                                int steps, int lane) {
  const int group = ptx::WarpgroupIndex();
  int previous = 0;
  mma.Clear();
  for (int step = 0; step < steps; ++step) {
    shared.ring.WaitFull(at);
    ptx::FenceAsyncProxy();
    mma.Multiply(ptx::SharedAddress(shared.a[at.stage]) + group * C::Mma::kRows * kRowBytes,
                 ptx::SharedAddress(shared.b[at.stage]));
    fill.Step();
    mma.template Retire<1>();
    if (step > 0) shared.ring.Release(previous, lane);
    previous = at.stage;
    at.Advance();
  }
  mma.template Retire<0>();
  shared.ring.Release(previous, lane);
}

template <typename C>
__device__ __forceinline__ void StoreTile(const ConvParams& p, typename C::Shared& shared,
                                          typename C::Mma& mma, int column, const int32_t* pixels) {
  using Trade = typename decltype(shared.trade)::Trade;
  const ScatterStore<typename C::T, C::kTileN, Trade, C::kStores> store(p, column,
                                                                        shared.trade.Make());
  const int lane_row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
  for (int i = 0; i < C::kBlocks; ++i) {
    const int row = threadIdx.x / 128 * C::Mma::kRows + i * 64 + lane_row;
    store.Store(mma.acc[i], {pixels[row], pixels[row + 8]});
  }
}

// A multiplying warpgroup: segment after segment, stored where its pixels are.
template <typename C>
__device__ __forceinline__ void Consume(const ConvParams& p, typename C::Shared& shared,
                                        typename C::Schedule schedule, int rank) {
  const int lane = ptx::ThreadIndex() % 32;
  const typename C::Partial partial(p);
  typename C::Fill fill(p, shared.zeros, lane, schedule.steps(), schedule.Spare());
  typename C::Mma mma;
  typename C::Position at;
  Segment s;
  for (int slot = 0; schedule.Next(&s); slot = slot + 1 == C::kPixelSlots ? 0 : slot + 1) {
    MultiplySegment<C>(mma, shared, at, fill, s.end - s.begin, lane);
    const int column = s.n_tile * C::kTileN;
    if constexpr (C::kSplitK > 1) {
      shared.reduce.Put(mma.acc[0], threadIdx.x / 128 * C::Mma::kRows);
      __syncwarp();
      ptx::ClusterSync();
      shared.reduce.template Finish<typename C::T>(p, rank, column, shared.pixels[slot]);
      __syncwarp();
      ptx::ClusterSync();
    } else if (C::kStreamK && s.begin > 0) {
      partial.Put(mma.acc, blockIdx.x);
    } else {
      if (C::kStreamK && schedule.Unfinished(s)) {
        for (int i = 1; schedule.Shares(s, i); ++i) {
          partial.Add(mma.acc, blockIdx.x - i * C::Schedule::kCtas);
        }
      }
      StoreTile<C>(p, shared, mma, column, shared.pixels[slot]);
    }
  }
  fill.Finish();
}

// A CTA's whole work as variant C: any kernel of C::kThreads threads, C::kSharedBytes of dynamic
// shared memory at `raw` and C's cluster (any, where C is one CTA wide) may run it, alone or as one
// of several that it chooses between uniformly. `p` and `map` are parameters of the kernel; `list`
// is one, or lies in shared memory.
template <typename C>
__device__ __forceinline__ void RunMaskedConv(const ConvParams& p, const RowList& list,
                                              const CUtensorMap& map, uint8_t* raw) {
  const uint32_t skew = (1024 - ptx::SharedAddress(raw) % 1024) % 1024;
  auto& shared = *reinterpret_cast<typename C::Shared*>(raw + skew);
  constexpr bool kClustered = C::kCluster * C::kSplitK > 1;
  const int rank = kClustered ? ptx::ClusterRank() : 0;
  const typename C::Gather::Rows rows(p, list);
  const int n_tiles = (p.out_c + C::kTileN - 1) / C::kTileN;
  if (ptx::WarpgroupIndex() < C::kConsumers) {
    if (threadIdx.x == 0) {
      ptx::PrefetchTensorMap(&map);
      shared.ring.Init();
    }
    shared.rows.FillOffsets(p, threadIdx.x);
    shared.zeros.ClearStrip(threadIdx.x);
    __syncwarp();
    ptx::NamedBarrierArrive(kStartBarrier, C::kThreads);
    ptx::NamedBarrier(kMultiplyBarrier, kConsumerThreads);
    if constexpr (kClustered) ptx::ClusterSync();
    ptx::RaiseRegisters<C::kMultiplyRegisters>();
    Consume<C>(p, shared, {p.k_steps, rows.rows(), n_tiles, rank}, rank);
  } else {
    ptx::LowerRegisters<C::kLoadRegisters>();
    // The first rows are looked up while the count and the others are on their way.
    typename C::Gather gather(p, shared.rows, threadIdx.x % kGatherThreads);
    if constexpr (!C::kStreamK) {
      gather.Announce(C::Schedule::FirstTile(n_tiles, rank), shared.pixels[0]);
      gather.Finish(rows);
    }
    __syncwarp();
    ptx::NamedBarrier(kStartBarrier, C::kThreads);
    if constexpr (kClustered) ptx::ClusterSync();
    Produce<C>(&map, shared, rows, gather, {p.k_steps, rows.rows(), n_tiles, rank}, rank);
  }
  if constexpr (kClustered) {
    __syncwarp();
    ptx::ClusterSync();  // peers may still arrive here or read our part
  }
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads, 1)
    MaskedConvWgmmaKernel(const __grid_constant__ ConvParams p,
                          const __grid_constant__ CUtensorMap map) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t raw[];
  RunMaskedConv<C>(p, p.list, map, raw);
#endif
}

}  // namespace jaxsparse
