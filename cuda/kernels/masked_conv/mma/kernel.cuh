// Masked convolution on the tensor cores of any device from sm_80 on: gather-load -> dense mma.sync
// tile -> scatter-store, over a device-side list.
//
// Floor:    2 * rows * taps * C * O operations at the device's mma.sync rate; rows are the active
//           pixels.
// Tile:     tile_m condensed pixels x tile_n output channels, K in steps of 128 bytes; four warps,
//           two by two, with the sums in registers.
// Pipeline: `stages` stages that all threads fill by cp.async, a quarter of a step's copies between
//           the quarters of the products, with the steps of the next tile behind those of the
//           current one, so that no tile starts empty; one barrier a step.
// Grid:     persistent, as many CTAs as the device holds. Zeros of a result without a base are
//           written by the same CTAs after their tiles.
// Predicted: mma.sync reaches 62 % of wgmma's rate on an H200, 490 TFLOP/s in bf16; a step of
//           128 x 128 x 64 is then 830 cycles of a multiprocessor, and brings 32 KB by 64 warp-wide
//           copies, 1,280 cycles at 20 each: 320 TFLOP/s.
// Measured (H200, 3x3, 256 -> 256 channels, 128 x 128): 328 TFLOP/s in bf16 on 131072 rows, 60 % of
//           m128n128 and 47 % of m128n256; 168 in TF32, 58 %. ncu: 55 % of the tensor cores'
//           cycles, 47 % of the LSU pipe's, 34 % of the issue slots; two warps a scheduler wait for
//           fixed latencies. Steps of 64 bytes take as many copies for half the bytes: 250 TFLOP/s
//           on 16384 rows, for 322. 128 x 256 with eight warps is no faster, nor are three stages.
//           One CTA alone takes 1.25 us a step: few rows go as 64 x 64.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/core/device.h"
#include "cuda/core/launch.h"
#include "cuda/kernels/masked_conv/mma/fill.cuh"
#include "cuda/kernels/masked_conv/mma/load.cuh"
#include "cuda/kernels/masked_conv/mma/product.cuh"
#include "cuda/kernels/masked_conv/mma/rows.cuh"
#include "cuda/tile/conv/schedule.cuh"

namespace jaxsparse {

template <typename Element, int M, int N, int StageCount, bool RaggedPixels>
struct MmaConfig {
  using T = Element;
  static constexpr int kTileM = M, kTileN = N, kStages = StageCount;
  static constexpr int kResident = M * N > 128 * 64 ? 2 : M * N > 64 * 64 ? 3 : 4;  // CTAs
  static constexpr int kSlots = kStages + 1;  // tiles from the one that is stored to the one that
                                              // is looked up
  using Rows = MmaRows<kTileM, kSlots>;
  using LookUp = MmaLookUp<Rows>;
  using Gather = MmaGather<Rows, RaggedPixels>;
  using Weights = MmaWeights<T, kTileN>;
  using Product = MmaProduct<T, kTileM, kTileN>;
  static constexpr Stores kStores = Stores::kEach;
  using Schedule = TileSchedule<kTileM, kTileN, 1, 1, false>;

  struct alignas(128) Shared {
    uint8_t a[kStages][kTileM * kMmaStepBytes];
    uint8_t b[kStages][Weights::kBytes];
    Rows rows;
  };
  static constexpr int kSharedBytes = sizeof(Shared);
  static_assert(kStages >= 2, "a stage is filled while another is read");
  static_assert(kSharedBytes <= 99 * 1024, "sm_86, sm_89 and sm_120 have no more");
};

// Fills stage after stage, tile after tile.
template <typename C>
class MmaLoad {
 public:
  __device__ MmaLoad(const MmaParams& p, const PixelRows<false>& rows, typename C::Shared& shared,
                     const typename C::Schedule& schedule)
      : p_(p),
        rows_(rows),
        shared_(shared),
        schedule_(schedule),
        look_up_(p.conv, shared.rows),
        gather_(p, shared.rows),
        weights_(p),
        depth_(p),
        step_(p.steps) {
    Announce();
  }

  // Goes to the next step, for stage `stage`; past the last one the copies bring zeros. All
  // threads.
  __device__ __forceinline__ void Begin(int stage) {
    if (step_ == p_.steps && more_) Enter();
    const bool none = step_ == p_.steps;
    gather_.Aim(depth_, slot_, none, simt::SharedAddress(shared_.a[stage]));
    weights_.Aim(column_, depth_.first(), none, simt::SharedAddress(shared_.b[stage]));
    if (none) return;
    depth_.Advance();
    ++step_;
  }

  // Part `part` of its copies.
  __device__ __forceinline__ void Copy(int part) const {
    gather_.Copy(part);
    weights_.Copy(part);
  }

  __device__ __forceinline__ void End() {
    simt::CommitCopies();
    look_up_.Step(rows_);
  }

 private:
  __device__ void Announce() {
    more_ = schedule_.Next(&next_);
    announced_ = announced_ + 1 == C::kSlots ? 0 : announced_ + 1;
    if (more_) look_up_.Begin(next_.m_tile, announced_);
  }

  // Goes to the announced tile.
  __device__ void Enter() {
    look_up_.Finish(rows_);
    __syncthreads();
    slot_ = announced_;
    column_ = next_.n_tile * C::kTileN;
    step_ = 0;
    depth_.Begin();
    Announce();
  }

  const MmaParams& p_;
  const PixelRows<false>& rows_;
  typename C::Shared& shared_;
  typename C::Schedule schedule_;
  typename C::LookUp look_up_;
  typename C::Gather gather_;
  typename C::Weights weights_;
  MmaDepth depth_;
  Segment next_;
  int step_, column_ = 0, slot_ = 0, announced_ = C::kSlots - 1;
  bool more_ = false;
};

// The body of a CTA of kMmaThreads threads with C::kSharedBytes of dynamic shared memory at `raw`,
// alone or as one of several that a kernel chooses between uniformly.
template <typename C>
__device__ __forceinline__ void RunMaskedConvMma(const MmaParams& p, const RowList& list,
                                                 uint8_t* raw) {
  auto& shared = *reinterpret_cast<typename C::Shared*>(raw);
  shared.rows.FillOffsets(p.conv);
  __syncthreads();  // a CTA without a tile looks at them, too
  const PixelRows<false> rows(p.conv, list);
  typename C::Schedule schedule(p.steps, rows.rows(), (p.conv.out_c + C::kTileN - 1) / C::kTileN,
                                0);
  MmaLoad<C> load(p, rows, shared, schedule);
  typename C::Product product;
#pragma unroll 1
  for (int stage = 0; stage < C::kStages - 1; ++stage) {
    load.Begin(stage);
#pragma unroll
    for (int part = 0; part < kMmaParts; ++part) load.Copy(part);
    load.End();
  }
  int stage = 0, slot = 0;
  Segment s;
  while (schedule.Next(&s)) {
    product.Clear();
#pragma unroll 1
    for (int step = 0; step < p.steps; ++step) {
      simt::WaitCopies<C::kStages - 2>();
      __syncthreads();  // this stage is filled, and the one before it read
      load.Begin(stage == 0 ? C::kStages - 1 : stage - 1);
      const uint32_t a = simt::SharedAddress(shared.a[stage]);
      const uint32_t b = simt::SharedAddress(shared.b[stage]);
#pragma unroll
      for (int part = 0; part < kMmaParts; ++part) {
        product.Multiply(a, b, part);
        load.Copy(part);
      }
      load.End();
      stage = stage + 1 == C::kStages ? 0 : stage + 1;
    }
    product.template Store<C::kStores>(p, s.n_tile * C::kTileN, shared.rows.tile[slot].pixel);
    slot = slot + 1 == C::kSlots ? 0 : slot + 1;
  }
  if (p.conv.zero_fill) FillUnset(p.conv, DTypeTraits<typename C::T>::kBytes);
}

template <typename C>
__global__ void __launch_bounds__(kMmaThreads, C::kResident)
    MaskedConvMmaKernel(const __grid_constant__ MmaParams p) {
  extern __shared__ __align__(128) uint8_t raw[];
  RunMaskedConvMma<C>(p, p.conv.list, raw);
}

// Readies a kernel of kMmaThreads threads, and says how many CTAs the current device holds at once.
template <typename Kernel>
cudaError_t PrepareMmaKernel(Kernel kernel, int shared_bytes, int* ctas) {
  cudaError_t status = PrepareKernel(kernel, shared_bytes);
  int each = 0;
  if (status == cudaSuccess) {
    status =
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, kMmaThreads, shared_bytes);
  }
  *ctas = static_cast<int>(MultiProcessors()) * each;
  return status;
}

template <typename T, int TileM, int TileN, int Stages, bool Ragged>
cudaError_t MaskedConvMma<T, TileM, TileN, Stages, Ragged>::Prepare(int* ctas) {
  using C = MmaConfig<T, TileM, TileN, Stages, Ragged>;
  return PrepareMmaKernel(&MaskedConvMmaKernel<C>, C::kSharedBytes, ctas);
}

template <typename T, int TileM, int TileN, int Stages, bool Ragged>
cudaError_t MaskedConvMma<T, TileM, TileN, Stages, Ragged>::Launch(const MmaParams& p, int ctas,
                                                                   cudaStream_t stream) {
  using C = MmaConfig<T, TileM, TileN, Stages, Ragged>;
  MaskedConvMmaKernel<C><<<ctas, kMmaThreads, C::kSharedBytes, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace jaxsparse
