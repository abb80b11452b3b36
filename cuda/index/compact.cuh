// From bits to a list: counts within a block, the block's place in the list, and coalesced stores.
// A list in any order needs no synchronisation between blocks: Zheng et al., SparDA: Accelerating
// Dynamic Sparse Deep Neural Networks via Sparse-Dense Transformation, 2023, section 3.4.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/index/tile_bits.cuh"

namespace jaxsparse {

// How one list's items are dealt to blocks: block b takes items [b*span, (b+1)*span), kThreads at a
// time.
struct Partition {
  static constexpr int kThreads = 128;
  static constexpr int kMaxBlocks =
      1024;  // of one list: an ordered block adds up the counts of all
  static constexpr int kSmallBlock = 512;     // up to so many items, and so many integers
  static constexpr int kSmallEntries = 8192;  // in the list, one block makes it faster than many
  int32_t items, steps, blocks;

  explicit Partition(int32_t items) : items(items) {
    steps = items / (kThreads * kMaxBlocks) + (items % (kThreads * kMaxBlocks) != 0);
    const int32_t span = kThreads * (steps > 0 ? steps : 1);
    blocks = items / span + (items % span != 0);
  }
};

// Sums over a block of `kThreads`. Every thread must call; calls may follow one another.
template <int kThreads>
class BlockSum {
 public:
  struct Result {
    int32_t before, total;  // the sum over lower threads; over all
  };

  __device__ static Result Exclusive(int32_t value) {
    __shared__ int32_t warp_sums[kThreads / 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int32_t sum = value;
    for (int step = 1; step < 32; step *= 2) {
      const int32_t left = __shfl_up_sync(~0u, sum, step);
      if (lane >= step) sum += left;
    }
    __syncthreads();
    if (lane == 31) warp_sums[warp] = sum;
    __syncthreads();
    Result result{sum - value, 0};
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w < warp) result.before += warp_sums[w];
      result.total += warp_sums[w];
    }
    return result;
  }
};

// Places and stores the tiles of a block.
class Compact {
 public:
  __device__ Compact(int64_t capacity, int32_t span_log2)
      : capacity_(capacity), span_log2_(span_log2) {}

  // Unordered: one addition per block reserves places; says so when they pass the capacity.
  __device__ int32_t Reserve(int32_t total, int32_t* count, bool* overflow) const {
    __shared__ int32_t base;
    if (threadIdx.x == 0) {
      base = total > 0 ? atomicAdd(count, total) : 0;
      if (static_cast<int64_t>(base) + total > capacity_) *overflow = true;
    }
    __syncthreads();
    return base;
  }

  // Each thread holds the tiles `word` for places from `place`. The lanes of a warp share the work
  // of every word, so that neighbouring lanes write neighbouring places. Calls emit(place, id) for
  // places below the capacity.
  template <class Emit>
  __device__ void Store(TileWord word, int32_t place, const Emit& emit) const {
    if (__ballot_sync(~0u, word.bits != 0) == 0) return;
    const int lane = threadIdx.x % 32, span = 1 << span_log2_;
    const int bit = lane & (span - 1);
#pragma unroll 4
    for (int k = 0; k < span; ++k) {
      const int source = (k << (5 - span_log2_)) + (lane >> span_log2_);
      const uint32_t bits = __shfl_sync(~0u, word.bits, source);
      const int32_t to = __shfl_sync(~0u, place, source) + __popc(bits & ((1u << bit) - 1u));
      const int32_t id = __shfl_sync(~0u, word.first_id, source) + bit;
      if ((bits >> bit & 1u) && to < capacity_) emit(to, id);
    }
  }

 private:
  int64_t capacity_;
  int32_t span_log2_;
};

}  // namespace jaxsparse
