// Layers of a stack through memory: a launch a layer, from one generation of slots to the next.
//
// Rows that a layer decided are left behind by the loads of the next one (tile.cuh), which
// finds the others where they are and stores them side by side: no launch moves state for its own
// sake. Behind each layer a small launch writes the decided rows' codes and numbers the others.
// After a few dozen layers the tiles need nothing of each other, and one launch takes each of them
// to the end.
//
// Floor: state in and out of memory, 8 bytes a value: .46 ms for a layer of 60,000 rows of 4096.
// For the challenge without folding, 3.8 layers' worth of undecided rows and turning the
// images: 2.2 ms at 4096. Measured 4.9 (18.9 at 16384); a full layer takes .81 to .89 ms. Under the
// profiler (three stages, 1.03 ms): memory 42 % busy, and no byte read twice; the second-level
// cache 69 %, 5.4 GB (27 % of sectors hit the first-level one, where neighbouring bundles could
// share 50); instructions issued in 40 % of the cycles; of 8.6 cycles that a warp spends on an
// instruction it waits 3.1 for copies and loads, and 2.3 for the one before. Two stages, which
// leave more of the first-level cache, are 4 to 9 % faster than three. A layer of few rows is a
// chain of dependent loads, 12 us.
#pragma once

#include "cuda/kernels/bounded_network/bundle.cuh"
#include "cuda/kernels/bounded_network/state.cuh"
#include "cuda/kernels/bounded_network/tile.cuh"
#include "cuda/kernels/bounded_network/verdicts.cuh"

namespace jaxsparse {

constexpr int kWideResident = 2;      // CTAs of an SM
constexpr uint32_t kUnitsOfWarp = 2;  // of a chunk
constexpr int64_t kWideShared = int64_t{kWideWarps} * kStages * sizeof(EntryStage);

// Bundles of a layer, or its rows.
__device__ inline uint32_t UnitsOf(const StackView& stack, uint32_t layer) {
  const uint32_t distinct = Distinct(stack, layer);
  return Bundled(stack, layer) ? distinct / kBundle : distinct;
}

// The units [first, first + many) of a layer for one tile of `to`'s slots, by a CTA.
template <bool kBundles, typename Index>
__device__ void TileUnits(const StackView& stack, uint32_t layer, const float* from,
                          const int32_t* source, float* to, uint32_t tile, uint32_t count,
                          uint32_t first, uint32_t many, uint32_t* not_zero, uint32_t* not_upper) {
  extern __shared__ EntryStage stages[];
  const LayerView<Index> view = LayerOf<Index>(stack, layer, InputsOf(stack, layer));
  const TileSources sources(from, source, tile, count, stack.widest);
  const uint32_t last = min(UnitsOf(stack, layer), first + many), lane = threadIdx.x % 32;
  const float upper = __ldg(stack.uppers + layer);
  const int64_t block = static_cast<int64_t>(kSlots) * stack.widest;
  const uint32_t begin = first + threadIdx.x / 32;
  EntryStage* const mine = stages + threadIdx.x / 32 * kStages;
  if (kBundles && Bundled(stack, layer)) {
    float* const out = to + StateOffset(tile * kTileSlots, 0, stack.widest);
    if (layer == 0) {
      TileBundles<false>(view, begin, last, sources, mine, out, block, upper, not_zero, not_upper);
    } else {
      TileBundles<true>(view, begin, last, sources, mine, out, block, upper, not_zero, not_upper);
    }
  } else {
    float* const out = to + StateOffset(tile * kTileSlots + lane, 0, stack.widest);
    TileRows(view, begin, last, sources, out, block, upper, not_zero, not_upper);
  }
}

// Persistent over the tiles in use and chunks of their units; smaller ones where that keeps more
// CTAs at work. `source`: where each slot's row is in `from`. Clears the number of the slots that
// the next launch gives away.
template <bool kBundles, typename Index>
__global__ void __launch_bounds__(kWideThreads, kWideResident)
    WideLayer(const __grid_constant__ StackView stack, const float* from, const int32_t* source,
              float* to, BlockVerdicts verdicts, const uint32_t* slots, uint32_t* next,
              uint32_t layer) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *next = 0;
  const uint32_t count = *slots, tiles = TilesInUse(count), units = UnitsOf(stack, layer);
  uint32_t many = kWideWarps * kUnitsOfWarp;
  if (tiles * ((units + many - 1) / many) < gridDim.x) many = kWideWarps;
  const uint32_t chunks = (units + many - 1) / many;
  for (uint32_t item = blockIdx.x; item < tiles * chunks; item += gridDim.x) {
    const uint32_t tile = item / chunks, block = tile * kTileBlocks;
    TileUnits<kBundles, Index>(stack, layer, from, source, to, tile, count, item % chunks * many,
                               many, verdicts.not_zero + block, verdicts.not_upper + block);
  }
}

// What a warp knows of one block of slots after `layer`: the codes of its decided rows are written,
// and it keeps the others. A lane a slot.
__device__ inline uint32_t SettleSlots(const StackView& stack, const int32_t* rows, uint32_t alive,
                                       uint32_t not_zero, uint32_t not_upper, uint32_t layer) {
  const uint32_t retires = Retires(stack, layer), bit = threadIdx.x % kSlots;
  const uint32_t zero = retires & kRetireZero ? ~not_zero & alive : 0;
  const uint32_t upper = retires & kRetireUpper ? ~not_upper & alive : 0;
  if ((zero | upper) >> bit & 1) stack.codes[rows[bit]] = zero >> bit & 1 ? kZero : kUpper;
  return alive & ~(zero | upper);
}

// A warp a block of slots: the rows that are left get slots of the next generation, and the words
// are clean for it.
__global__ void __launch_bounds__(kWideThreads)
    WideSettle(const __grid_constant__ StackView stack, const int32_t* rows, int32_t* next_rows,
               int32_t* source, BlockVerdicts verdicts, const uint32_t* slots, uint32_t* next,
               uint32_t layer) {
  const uint32_t block = (blockIdx.x * kWideThreads + threadIdx.x) / kSlots;
  const uint32_t alive = SlotsInUse(*slots, block), bit = threadIdx.x % kSlots;
  if (alive == 0) return;
  const uint32_t slot = block * kSlots + bit;
  const uint32_t left = SettleSlots(stack, rows + block * kSlots, alive, verdicts.not_zero[block],
                                    verdicts.not_upper[block], layer);
  __syncwarp();
  uint32_t base = 0;
  if (bit == 0) {
    verdicts.not_zero[block] = verdicts.not_upper[block] = 0;
    base = atomicAdd(next, __popc(left));
  }
  base = __shfl_sync(~0u, base, 0);
  if (!(left >> bit & 1)) return;
  const uint32_t mine = base + __popc(left & ((1u << bit) - 1));
  next_rows[mine] = rows[slot];
  source[mine] = static_cast<int32_t>(slot);
}

// The rows of a block of slots that are left are mixed results: a warp turns 32 outputs of 32 slots
// in its part of shared memory at a time.
__device__ inline void WriteSlots(const StackView& stack, const int32_t* rows, const float* state,
                                  uint32_t alive, float (*turned)[kSlots + 1]) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (warp == 0 && alive >> lane & 1) stack.codes[rows[lane]] = kMixed;
  for (int64_t first = warp * 32; first < stack.n_out; first += kWideThreads) {
    const int64_t many = min(stack.n_out - first, int64_t{32});
    for (int64_t n = 0; n < many; ++n) {
      const uint32_t o =
          stack.expand ? __ldg(stack.expand + first + n) : static_cast<uint32_t>(first + n);
      turned[n][lane] = state[min(o, stack.widest - 1) * int64_t{kSlots} + lane];
    }
    __syncwarp();
    for (uint32_t left = alive; left != 0; left &= left - 1) {
      const uint32_t bit = __ffs(left) - 1;
      if (lane < many) stack.out[rows[bit] * stack.n_out + first + lane] = turned[lane][bit];
    }
    __syncwarp();
  }
}

// Layers [first, depth) of one tile, each from its own slots to its own slots, and its results. Of
// layer first - 1 the words are there, and nothing is settled yet.
template <bool kBundles, typename Index>
__global__ void __launch_bounds__(kWideThreads, kWideResident)
    WideTail(const __grid_constant__ StackView stack, const int32_t* rows, float* from, float* to,
             BlockVerdicts verdicts, const uint32_t* slots, uint32_t first) {
  extern __shared__ EntryStage stages[];
  __shared__ uint32_t not_zero[kTileBlocks], not_upper[kTileBlocks], alive[kTileBlocks];
  const uint32_t tile = blockIdx.x, block = tile * kTileBlocks, count = *slots;
  if (tile >= TilesInUse(count)) return;
  if (threadIdx.x < kTileBlocks) {
    not_zero[threadIdx.x] = verdicts.not_zero[block + threadIdx.x];
    not_upper[threadIdx.x] = verdicts.not_upper[block + threadIdx.x];
    alive[threadIdx.x] = SlotsInUse(count, block + threadIdx.x);
  }
  for (uint32_t layer = first;; ++layer) {
    __syncthreads();
    const uint32_t mine = threadIdx.x / 32;
    uint32_t kept = 0;
    if (mine < kTileBlocks) {
      kept = SettleSlots(stack, rows + (block + mine) * kSlots, alive[mine], not_zero[mine],
                         not_upper[mine], layer - 1);
      __syncwarp();
      if (threadIdx.x % 32 == 0) {
        alive[mine] = kept;
        not_zero[mine] = not_upper[mine] = 0;
      }
    }
    if (!__syncthreads_or(kept != 0)) return;
    if (layer == stack.depth) break;
    TileUnits<kBundles, Index>(stack, layer, from, nullptr, to, tile, count, 0, stack.widest,
                               not_zero, not_upper);
    float* const before = from;
    from = to;
    to = before;
  }
  auto* const turned = reinterpret_cast<float (*)[kSlots + 1]>(stages + threadIdx.x / 32 * kStages);
  for (uint32_t b = 0; b < kTileBlocks; ++b) {
    if (alive[b] == 0) continue;
    WriteSlots(stack, rows + (block + b) * kSlots,
               from + StateOffset((block + b) * kSlots, 0, stack.widest), alive[b], turned);
  }
}

}  // namespace jaxsparse
