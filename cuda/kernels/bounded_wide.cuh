// A stack whose state is too wide for shared memory, layer by layer: from one generation in memory
// to the other.
//
// Floor: 128 bytes from the second-level cache for a unit's entry and 32 images: 1.4 T
// multiply-adds a second for rows, sixteen times that for bundles, which are bound by memory (state
// in and out) and by their weights' loads. A CTA takes 32 units of one block of 32 slots after the
// other, chunks of units fastest, so that the few blocks of slots at work and the layer's weights
// stay in the second-level cache. After fixed layers the undecided rows move together; behind the
// last of these the blocks of slots need nothing of each other, and one launch takes each of them
// to the end. Predicted for the challenge unfolded, 60,000 images of 4096 / 16384 neurons: 3.5 / 14
// ms; measured 7.1 / 29.5 (24 at 4096 in rows). A full layer at 4096 takes 1.08 ms, 7.3 T/s; the
// first four regroupings cost as much as the layers behind them (1.03 + .68 + .39 + .22 ms), at 1.3
// TB/s: their stores are parts of sectors.
#pragma once

#include "cuda/kernels/bounded_state.cuh"
#include "cuda/kernels/bounded_unit.cuh"

namespace jaxsparse {

constexpr int kWideThreads = 256;
constexpr int kWideGroups = kSlots / 4;
constexpr int kWideUnits = kWideThreads / kWideGroups;
// CTAs of an SM.
constexpr int WideResident(bool bundles) { return bundles ? 2 : 4; }

// Of each block of slots: which are undecided, what rules the two states out, and the first of the
// next generation's slots that are its own.
struct BlockVerdicts {
  uint32_t *alive, *not_zero, *not_upper, *base;
};

__device__ inline uint32_t BlocksInUse(const uint32_t* count) {
  return (*count + kSlots - 1) / kSlots;
}

template <bool kBundles, typename Index>
__device__ void WideUnits(const StackView& stack, const float* from, float* to, uint32_t block,
                          uint32_t layer, uint32_t first, uint32_t step, SaturationProbe& probe) {
  const LayerView<Index> view = LayerOf<Index>(stack, layer, InputsOf(stack, layer));
  const int64_t at = StateOffset(block * kSlots, 0, stack.widest) + threadIdx.x % kWideGroups * 4;
  Units<kBundles, kSlots>(view, Distinct(stack, layer), Bundled(stack, layer),
                          first + threadIdx.x / kWideGroups, step, from + at, to + at,
                          __ldg(stack.uppers + layer), probe);
}

// Persistent over the blocks of slots in use and their chunks of units.
template <bool kBundles, typename Index>
__global__ void __launch_bounds__(kWideThreads, WideResident(kBundles))
    WideLayer(const __grid_constant__ StackView stack, const float* from, float* to,
              BlockVerdicts verdicts, const uint32_t* count, uint32_t layer, uint32_t chunks) {
  const uint32_t items = BlocksInUse(count) * chunks;
  for (uint32_t item = blockIdx.x; item < items; item += gridDim.x) {
    const uint32_t block = item / chunks, chunk = item % chunks;
    if (verdicts.alive[block] == 0) continue;
    SaturationProbe probe(__ldg(stack.uppers + layer));
    WideUnits<kBundles, Index>(stack, from, to, block, layer, chunk * kWideUnits,
                               chunks * kWideUnits, probe);
    probe.Merge(kWideGroups, verdicts.not_zero + block, verdicts.not_upper + block);
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

// A warp a block of slots; leaves clean words for the next layer. With `to` the rows that are left
// get slots of the next generation, too.
__global__ void __launch_bounds__(kWideThreads)
    WideSettle(const __grid_constant__ StackView stack, Generation from, Generation to,
               BlockVerdicts verdicts, uint32_t layer) {
  const uint32_t block = (blockIdx.x * kWideThreads + threadIdx.x) / kSlots;
  if (block >= BlocksInUse(from.count)) return;
  const uint32_t bit = threadIdx.x % kSlots;
  const int32_t* rows = from.rows + static_cast<int64_t>(block) * kSlots;
  const uint32_t left = SettleSlots(stack, rows, verdicts.alive[block], verdicts.not_zero[block],
                                    verdicts.not_upper[block], layer);
  __syncwarp();
  uint32_t base = 0;
  if (bit == 0) {
    verdicts.alive[block] = left;
    verdicts.not_zero[block] = verdicts.not_upper[block] = 0;
    if (to.rows != nullptr) verdicts.base[block] = base = atomicAdd(to.count, __popc(left));
  }
  base = __shfl_sync(~0u, base, 0);
  if (to.rows == nullptr || !(left >> bit & 1)) return;
  to.rows[base + __popc(left & ((1u << bit) - 1))] = rows[bit];
}

// The undecided rows' values move to their new slots: a warp four values of a block of slots, a
// lane a slot.
__global__ void __launch_bounds__(kWideThreads)
    WideCompact(const __grid_constant__ StackView stack, Generation from, Generation to,
                BlockVerdicts verdicts, uint32_t layer) {
  const uint32_t distinct = Distinct(stack, layer), fours = (distinct + 3) / 4;
  const uint32_t bit = threadIdx.x % kSlots;
  const int64_t items = static_cast<int64_t>(BlocksInUse(from.count)) * fours;
  const int64_t warps = static_cast<int64_t>(gridDim.x) * (kWideThreads / 32);
  int64_t item = (static_cast<int64_t>(blockIdx.x) * kWideThreads + threadIdx.x) / 32;
  for (; item < items; item += warps) {
    const uint32_t block = static_cast<uint32_t>(item / fours);
    const uint32_t first = static_cast<uint32_t>(item % fours) * 4;
    const uint32_t alive = verdicts.alive[block];
    if (!(alive >> bit & 1)) continue;
    const uint32_t old = block * kSlots + bit;
    const uint32_t slot = verdicts.base[block] + __popc(alive & ((1u << bit) - 1));
    float values[4];
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) {
      const uint32_t o = min(first + k, distinct - 1);
      values[k] = from.state[StateOffset(old, o, stack.widest)];
    }
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) {
      const uint32_t o = min(first + k, distinct - 1);
      to.state[StateOffset(slot, o, stack.widest)] = values[k];
    }
  }
}

// The verdicts of `count` slots of which nothing is known.
__global__ void __launch_bounds__(kWideThreads)
    WideReset(const uint32_t* count, BlockVerdicts verdicts, uint32_t blocks) {
  const uint32_t block = blockIdx.x * kWideThreads + threadIdx.x;
  if (block >= blocks) return;
  const int64_t left = static_cast<int64_t>(*count) - static_cast<int64_t>(block) * kSlots;
  verdicts.alive[block] = left >= kSlots ? ~0u : left > 0 ? (1u << left) - 1 : 0;
  verdicts.not_zero[block] = verdicts.not_upper[block] = 0;
}

// The rows of a block of slots that are left are mixed results.
__device__ inline void WriteSlots(const StackView& stack, const int32_t* rows, const float* state,
                                  uint32_t block, uint32_t alive) {
  for (uint32_t bit = 0; bit < kSlots; ++bit) {
    if (!(alive >> bit & 1)) continue;
    const int64_t row = rows[block * kSlots + bit];
    if (threadIdx.x == 0) stack.codes[row] = kMixed;
    for (int64_t n = threadIdx.x; n < stack.n_out; n += kWideThreads) {
      const uint32_t o = stack.expand ? __ldg(stack.expand + n) : static_cast<uint32_t>(n);
      stack.out[row * stack.n_out + n] =
          state[StateOffset(block * kSlots + bit, min(o, stack.widest - 1), stack.widest)];
    }
  }
}

// Layers [first, depth) of one block of slots, and its results.
template <bool kBundles, typename Index>
__global__ void __launch_bounds__(kWideThreads, WideResident(kBundles))
    WideTail(const __grid_constant__ StackView stack, const int32_t* rows, float* from, float* to,
             BlockVerdicts verdicts, uint32_t first) {
  __shared__ uint32_t not_zero, not_upper, left;
  const uint32_t block = blockIdx.x;
  uint32_t alive = verdicts.alive[block];
  for (uint32_t layer = first; alive != 0 && layer < stack.depth; ++layer) {
    if (threadIdx.x == 0) not_zero = not_upper = 0;
    __syncthreads();
    SaturationProbe probe(__ldg(stack.uppers + layer));
    WideUnits<kBundles, Index>(stack, from, to, block, layer, 0, kWideUnits, probe);
    probe.Merge(kWideGroups, &not_zero, &not_upper);
    __syncthreads();
    if (threadIdx.x < kSlots) {
      const uint32_t kept = SettleSlots(stack, rows + static_cast<int64_t>(block) * kSlots, alive,
                                        not_zero, not_upper, layer);
      if (threadIdx.x == 0) left = kept;
    }
    __syncthreads();
    alive = left;
    float* const before = from;
    from = to;
    to = before;
  }
  if (alive != 0) WriteSlots(stack, rows, from, block, alive);
}

}  // namespace jaxsparse
