// One pass of a stable sort of keys by a digit: blocks count their stretch of the list, then every
// block adds up the counts before it and puts its items in place.
//
// Floor:  4 bytes read twice and 8 written an item; two launches and their latencies, about 5 us.
// Tile:   2048 items a block, 128 a warp, all loaded at once. A warp ranks 32 items at a time:
// lanes
//         of the same bucket find each other by a ballot a bit (the match instruction takes longer
//         the more buckets there are).
// Measured (H200, in a graph): 65536 items 9.2 us for 8 experts, 13.3 us for 256; 262144 items 15.1
// and
//         21.8 us. Adding up the counts of 128 blocks is a chain of loads in every block.
// The counts of all blocks are read by every block, from L2: 128 blocks of 257 counts are 132 KB.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace jaxsparse::routing {

inline constexpr int kThreads = 512, kWarps = kThreads / 32, kRounds = 4;
inline constexpr int kItems = kThreads * kRounds;  // of a block

// Where a pass reads its items, and which bucket each falls into.
struct Pass {
  const int32_t* ids;       // [lists, count], by assignment
  const int32_t* previous;  // [lists, count]: the order so far; nullptr: as given
  int64_t count;
  int experts;         // ids outside of [0, experts) count as `experts`
  int shift, buckets;  // the bucket is (key >> shift) % buckets, or the key where they suffice
  bool digits;
};

__device__ __forceinline__ int ItemAt(const Pass& p, int64_t list, int64_t i) {
  return p.previous == nullptr ? static_cast<int>(i) : p.previous[list * p.count + i];
}

__device__ __forceinline__ int BucketOf(const Pass& p, int64_t list, int item) {
  const int id = p.ids[list * p.count + item];
  const int key = id >= 0 && id < p.experts ? id : p.experts;
  return p.digits ? (key >> p.shift) % p.buckets : key;
}

// A warp's items, 32 a round: what they are, their buckets (-1: past the end), and the lanes of the
// same bucket.
struct WarpItems {
  int item[kRounds], bucket[kRounds];
  uint32_t same[kRounds];

  __device__ WarpItems(const Pass& p, int64_t list, int64_t first) {
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const int64_t i = first + r * 32 + threadIdx.x % 32;
      item[r] = i < p.count ? ItemAt(p, list, i) : -1;
    }
#pragma unroll
    for (int r = 0; r < kRounds; ++r) bucket[r] = item[r] < 0 ? -1 : BucketOf(p, list, item[r]);
    const int bits = 32 - __clz(p.buckets - 1);
#pragma unroll
    for (int r = 0; r < kRounds; ++r) same[r] = Alike(bucket[r], bits);
  }

  // Of this lane among the lanes of the same bucket.
  __device__ int Rank(int r) const { return __popc(same[r] & ((1u << threadIdx.x % 32) - 1)); }

  // The lanes whose bucket is this lane's; of no meaning where there is none.
  __device__ static uint32_t Alike(int bucket, int bits) {
    uint32_t same = __ballot_sync(0xFFFFFFFFu, bucket >= 0);
    for (int b = 0; b < bits; ++b) {
      const bool one = bucket >> b & 1;
      const uint32_t ones = __ballot_sync(0xFFFFFFFFu, one);
      same &= one ? ones : ~ones;
    }
    return same;
  }

  // Adds the items to counts[bucket].
  __device__ void Count(int32_t* counts) const {
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      if (bucket[r] >= 0 && Rank(r) == 0) counts[bucket[r]] += __popc(same[r]);
      __syncwarp();
    }
  }
};

__device__ __forceinline__ void ClearCounts(int32_t* counts, int n) {
  for (int i = threadIdx.x; i < n; i += kThreads) counts[i] = 0;
  __syncthreads();
}

// histogram[list][block][bucket].
__global__ void __launch_bounds__(kThreads) CountKernel(const Pass p, int32_t* histogram) {
  extern __shared__ int32_t counts[];  // [kWarps][buckets]
  const int warp = threadIdx.x / 32;
  const int64_t list = blockIdx.y, blocks = gridDim.x;
  const WarpItems items(p, list, int64_t{blockIdx.x} * kItems + warp * (kRounds * 32));
  ClearCounts(counts, kWarps * p.buckets);
  items.Count(counts + warp * p.buckets);
  __syncthreads();
  int32_t* mine = histogram + (list * blocks + blockIdx.x) * p.buckets;
  for (int b = threadIdx.x; b < p.buckets; b += kThreads) {
    int sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += counts[w * p.buckets + b];
    mine[b] = sum;
  }
}

// Exclusive sum over the block of one value a thread; `carry` is added, and grows by the total.
__device__ __forceinline__ int ExclusiveSum(int v, int32_t* warps, int* carry) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int sum = v;
  for (int d = 1; d < 32; d *= 2) {
    const int below = __shfl_up_sync(0xFFFFFFFFu, sum, d);
    if (lane >= d) sum += below;
  }
  __syncthreads();
  if (lane == 31) warps[warp] = sum;
  __syncthreads();
  int before = *carry;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before += warps[w];
    *carry += warps[w];
  }
  return before + sum - v;
}

// Where this block's first item of each bucket goes, for each of its warps: starts[warp][bucket],
// which holds the warps' own counts before. Block 0 leaves the buckets' sizes.
__device__ __forceinline__ void PlaceBlock(const Pass& p, const int32_t* histogram, int32_t* starts,
                                           int32_t* sizes, int experts) {
  __shared__ int32_t warps[kWarps];
  const int64_t list = blockIdx.y;
  const int blocks = gridDim.x, me = blockIdx.x;
  int carry = 0;
  for (int base = 0; base < p.buckets; base += kThreads) {
    const int b = base + threadIdx.x;
    int before = 0, total = 0;
    if (b < p.buckets) {
      const int32_t* column = histogram + list * blocks * p.buckets + b;
#pragma unroll 32
      for (int k = 0; k < blocks; ++k) {
        const int count = __ldg(column + int64_t{k} * p.buckets);
        total += count;
        before += k < me ? count : 0;
      }
    }
    int at = ExclusiveSum(total, warps, &carry) + before;
    if (b >= p.buckets) continue;
    if (sizes != nullptr && me == 0 && b < experts) sizes[list * experts + b] = total;
    for (int w = 0; w < kWarps; ++w) {
      const int count = starts[w * p.buckets + b];
      starts[w * p.buckets + b] = at;
      at += count;
    }
  }
  __syncthreads();
}

// Puts the items in place. `source` and `sizes` are nullptr but in the last pass.
__global__ void __launch_bounds__(kThreads)
    PlaceKernel(const Pass p, const int32_t* histogram, int32_t* order, int32_t* source,
                int32_t* sizes, int top_k) {
  extern __shared__ int32_t starts[];  // [kWarps][buckets]
  const int warp = threadIdx.x / 32;
  const int64_t list = blockIdx.y;
  int32_t* const mine = starts + warp * p.buckets;
  const WarpItems items(p, list, int64_t{blockIdx.x} * kItems + warp * (kRounds * 32));
  ClearCounts(starts, kWarps * p.buckets);
  items.Count(mine);
  __syncthreads();
  PlaceBlock(p, histogram, starts, sizes, p.experts);
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const bool there = items.bucket[r] >= 0;
    const int begin = there ? mine[items.bucket[r]] : 0;
    __syncwarp();
    if (there) {
      const int rank = items.Rank(r);
      const int64_t at = list * p.count + begin + rank;
      order[at] = items.item[r];
      if (source != nullptr) source[at] = items.item[r] / top_k;
      if (rank == 0) mine[items.bucket[r]] = begin + __popc(items.same[r]);
    }
    __syncwarp();
  }
}

// More experts than a pass has buckets: their sizes by counting; integers, so in any order.
__global__ void __launch_bounds__(kThreads) ClearSizesKernel(int32_t* sizes, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) sizes[i] = 0;
}

__global__ void __launch_bounds__(kThreads) CountSizesKernel(const Pass p, int32_t* sizes) {
  const int64_t list = blockIdx.y, step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < p.count; i += step) {
    const int id = p.ids[list * p.count + i];
    if (id >= 0 && id < p.experts) atomicAdd(sizes + list * p.experts + id, 1);
  }
}

}  // namespace jaxsparse::routing
