// Masked product on tensor cores for a fine mask on `a`: blocks of few rows, down to single
// entries. 16 rows of `a` are condensed along K by themselves: a step of theirs multiplies 16 rows
// of `b` (8 in float32), wherever these lie in the slab of `b` that is in shared memory.
//
// The tensor cores take `b` as the left operand, transposed, so that rows of `a` are its narrow
// side. ldmatrix gathers: each lane names the row of `b` that it reads.
//
// Floor:    512 bytes of shared memory for each step of 16 rows by 16 columns: where a share u of K
//           is kept by one of 16 rows, 2u of the time of a dense product at the peak of wgmma, and
//           1.4 times that for rows of `b` in the same banks. Of L2: `b` for every 256 rows, and
//           what is packed of `a` for every 128 columns.
// Tile:     256 x 128; a warp has 16 of the rows and all columns, 64 sums a lane.
// Pipeline: one warp loads slabs of 64 KB by TMA, three stages; each of the others asks for its own
//           records of `a`, two ahead.
// Grid:     persistent, tiles of the same columns together.
#include "cuda/kernels/masked_matmul/fine/product.cuh"

#include <algorithm>

#include "cuda/core/device.h"
#include "cuda/core/launch.h"
#include "cuda/core/overlap.cuh"
#include "cuda/core/warpgroup.cuh"
#include "cuda/tile/load/stack.cuh"
#include "cuda/tile/pipeline.cuh"

namespace jaxsparse {
namespace {

constexpr int kThreads = 32 * (kFineWarps + 4);  // registers are traded by warpgroups
constexpr int kMultiplyRegisters = 112, kLoadRegisters = 24;

// One lane loads all slabs of all tiles.
template <typename T>
__device__ __forceinline__ void Produce(const FineParams& p, FineRing& ring,
                                        const CUtensorMap* b_map) {
  constexpr int kSlab = kFineSlabBytes / DTypeTraits<T>::kBytes;
  constexpr int kBoxColumns = 128 / DTypeTraits<T>::kBytes, kBoxBytes = kSlab * 128;
  RingPosition<kFineStages> at;
  for (int item = blockIdx.x; item < FineItems(p); item += gridDim.x) {
    const FineTile tile(p, item);
    for (int slab = 0; slab < p.slabs; ++slab, at.Advance()) {
      const uint32_t full = ptx::SharedAddress(&ring.full[at.stage]);
      ptx::BarrierWait(ptx::SharedAddress(&ring.empty[at.stage]), at.parity ^ 1);
      ptx::BarrierArriveExpect(full, kFineStageBytes);
#pragma unroll
      for (int box = 0; box < kFineStageBytes / kBoxBytes; ++box) {
        ptx::LoadStackBox(ptx::SharedAddress(ring.b[at.stage]) + box * kBoxBytes, b_map,
                          tile.column + box * kBoxColumns, slab * kSlab,
                          p.b_lists == 1 ? 0 : tile.list, full, ptx::kEvictLast);
      }
    }
  }
}

template <typename T>
__device__ __forceinline__ void Consume(const FineParams& p, FineRing& ring, int warp) {
  const int lane = threadIdx.x % 32;
  FineRecords records(p, warp);
  const auto ask = [&](int slot) {
    const char* from = records.Next();
    const uint32_t to = ptx::SharedAddress(ring.records[warp][slot]);
    if (from != nullptr) ptx::CopyAsync16(to + 16 * lane, from + 16 * lane);
    if (from != nullptr && lane == 0) {
      ptx::CopyAsync16(to + kFragmentBytes, from + kFragmentBytes);
    }
    ptx::CloseGroup();
  };
  for (int i = 0; i + 1 < kAhead; ++i) ask(i);
  int slot = 0;
  RingPosition<kFineStages> at;
  for (int item = blockIdx.x; item < FineItems(p); item += gridDim.x) {
    const FineTile tile(p, item);
    FineSums sums = {};
    for (int slab = 0; slab < p.slabs; ++slab, at.Advance()) {
      const int steps = StepsOf(p, tile, slab, warp);
      const uint32_t b = ptx::SharedAddress(ring.b[at.stage]);
      ptx::BarrierWait(ptx::SharedAddress(&ring.full[at.stage]), at.parity);
      for (int left = steps; left > 0; --left) {
        ptx::WaitForGroups<kAhead - 2>();
        __syncwarp();  // it is there for all lanes, and all have read the one before
        ask(slot == 0 ? kAhead - 1 : slot - 1);
        MultiplyStep<T>(sums, b, ring.records[warp][slot]);
        slot = slot + 1 == kAhead ? 0 : slot + 1;
      }
      __syncwarp();  // all lanes have read it
      if (lane == 0) ptx::BarrierArrive(ptx::SharedAddress(&ring.empty[at.stage]));
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = tile.row_tile * kFineRows + warp * kGroupRows + half * 8;
      const FineTarget to = {tile.list, row, tile.column};
      if (row >= p.rows) break;
      if constexpr (DTypeTraits<T>::kBytes == 2) {
        if (!p.out_f32) {
          StoreNarrow<T>(p, to, sums[half], ptx::SharedAddress(ring.out[warp]));
          continue;
        }
      }
      StoreWide(p, to, sums[half]);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads, 1)
    FineProductKernel(const __grid_constant__ FineParams p,
                      const __grid_constant__ CUtensorMap b_map) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t raw[];
  auto& ring = *reinterpret_cast<FineRing*>(raw + (1024 - ptx::SharedAddress(raw) % 1024) % 1024);
  if (threadIdx.x == 0) {
    for (int s = 0; s < kFineStages; ++s) {
      ptx::BarrierInit(ptx::SharedAddress(&ring.full[s]), 1);
      ptx::BarrierInit(ptx::SharedAddress(&ring.empty[s]), kFineWarps);
    }
    ptx::FenceBarrierInit();
  }
  __syncthreads();
  WaitForPrevious();
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  if (warp < kFineWarps) {
    ptx::RaiseRegisters<kMultiplyRegisters>();
    Consume<T>(p, ring, warp);
  } else {
    ptx::LowerRegisters<kLoadRegisters>();
    if (threadIdx.x == 32 * kFineWarps) Produce<T>(p, ring, &b_map);
  }
#endif
}

constexpr int kSharedBytes = 1024 + static_cast<int>(sizeof(FineRing));
// What a launch gives each of so many threads; more cannot be raised to than was lowered.
constexpr int kLaunchRegisters = 96;
static_assert(32 * kFineWarps * kMultiplyRegisters + 128 * kLoadRegisters <=
                  kThreads * kLaunchRegisters,
              "a warpgroup would wait for registers forever");
static_assert(kSharedBytes <= 227 * 1024, "the ring does not fit in shared memory");

template <typename T>
cudaError_t Launch(const FineParams& p, const CUtensorMap& b_map, cudaStream_t stream) {
  const int64_t items = int64_t{p.lists} * p.row_tiles * p.column_tiles;
  const auto grid = static_cast<unsigned>(std::min(items, MultiProcessors()));
  return LaunchOverlapped(&FineProductKernel<T>, dim3(grid), kThreads, kSharedBytes, stream, p,
                          b_map);
}

}  // namespace

cudaError_t LaunchFineProduct(const FineParams& p, DType type, const CUtensorMap& b_map,
                              cudaStream_t stream) {
  if (type == DType::kF32) return Launch<TF32>(p, b_map, stream);
  if (type == DType::kBF16) return Launch<__nv_bfloat16>(p, b_map, stream);
  return Launch<__half>(p, b_map, stream);
}

cudaError_t PrepareFineProduct() {
  cudaError_t status = PrepareKernel(&FineProductKernel<TF32>, kSharedBytes);
  if (status == cudaSuccess) {
    status = PrepareKernel(&FineProductKernel<__nv_bfloat16>, kSharedBytes);
  }
  return status == cudaSuccess ? PrepareKernel(&FineProductKernel<__half>, kSharedBytes) : status;
}

}  // namespace jaxsparse
