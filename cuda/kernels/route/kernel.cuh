// One pass of a stable sort of keys by a digit: blocks count their stretch of the list, then every
// block adds up the counts before it, sorts its items in shared memory, and writes them in runs.
//
// Floor:  4 bytes read twice and 8 written an item; two launches and their latencies, about 5 us.
// Tile:   2048 items a block, 128 a warp, all loaded at once. A warp ranks 32 items at a time:
//         lanes of the same bucket find each other by a ballot a bit (the match instruction takes
//         longer the more buckets there are). A warp adds up a bucket's counts of 128 blocks with
//         one load of 8 bytes a lane: 128 blocks of 257 counts are 66 KB from L2 in every block.
// Stores: runs of a bucket's items; item by item they would touch a sector each.
// Launch: the second kernel may start with the first one, ranks its items, and waits for the
// counts. Measured (H200, in a graph): 262144 items 6.5 us for 8 experts, 8.0 for 64, 9.0 for
// 128, 10.5 for
//         256; 16384 items 5.1 to 8.0 us.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/core/overlap.cuh"

namespace jaxsparse::routing {

inline constexpr int kThreads = 512, kWarps = kThreads / 32, kRounds = 4;
inline constexpr int kItems = kThreads * kRounds;  // of a block
static_assert(kItems <= UINT16_MAX, "a block's count of a bucket must fit 16 bits");

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
    FindAlike(32 - __clz(p.buckets - 1));
  }

  // Of this lane among the lanes of the same bucket.
  __device__ int Rank(int r) const { return __popc(same[r] & ((1u << threadIdx.x % 32) - 1)); }

  // The lanes whose bucket is this lane's; of no meaning where there is none. All rounds bit by
  // bit, so that their ballots overlap.
  __device__ void FindAlike(int bits) {
#pragma unroll
    for (int r = 0; r < kRounds; ++r) same[r] = __ballot_sync(0xFFFFFFFFu, bucket[r] >= 0);
    for (int b = 0; b < bits; ++b) {
#pragma unroll
      for (int r = 0; r < kRounds; ++r) {
        const bool one = bucket[r] >> b & 1;
        const uint32_t ones = __ballot_sync(0xFFFFFFFFu, one);
        same[r] &= one ? ones : ~ones;
      }
    }
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

// Sum over the warps of counts[warp][bucket].
__device__ __forceinline__ int BlockCount(const int32_t* counts, int buckets, int bucket) {
  int sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += counts[w * buckets + bucket];
  return sum;
}

// histogram[list][bucket][width]: a bucket's counts of all blocks side by side.
__global__ void __launch_bounds__(kThreads)
    CountKernel(const Pass p, uint16_t* histogram, int64_t width) {
  extern __shared__ int32_t counts[];  // [kWarps][buckets]
  LetNextStart();
  const int warp = threadIdx.x / 32;
  const int64_t list = blockIdx.y;
  const WarpItems items(p, list, int64_t{blockIdx.x} * kItems + warp * (kRounds * 32));
  ClearCounts(counts, kWarps * p.buckets);
  items.Count(counts + warp * p.buckets);
  __syncthreads();
  uint16_t* mine = histogram + list * p.buckets * width + blockIdx.x;
  for (int b = threadIdx.x; b < p.buckets; b += kThreads) {
    mine[b * width] = static_cast<uint16_t>(BlockCount(counts, p.buckets, b));
  }
}

// What is known of a bucket: its items in this block, in the blocks before, and in all.
struct BucketCounts {
  int here, before, total;
};

// A warp adds up the counts of its share of the buckets, kAtOnce buckets and 128 blocks at a time.
class BlockSums {
 public:
  // `buckets` of the histogram are added up.
  __device__ BlockSums(const uint16_t* histogram, int64_t width, int buckets)
      : histogram_(histogram), width_(width), buckets_(buckets), blocks_(gridDim.x) {}

  __device__ void Add(BucketCounts* out) {
    for (int base = Warp(); base < buckets_; base += kWarps * kAtOnce) {
      int total[kAtOnce] = {}, before[kAtOnce] = {};
      for (int first = Lane() * 4; first < blocks_; first += 128) {
        Load(base, first);
        const uint2 valid = Below(blocks_ - first),
                    prior = Below(static_cast<int>(blockIdx.x) - first);
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          total[i] += Halves((four_[i].x & valid.x) + (four_[i].y & valid.y));
          before[i] += Halves((four_[i].x & prior.x) + (four_[i].y & prior.y));
        }
      }
      Reduce(base, total, before, out);
    }
  }

 private:
  static constexpr int kAtOnce = 16;
  static_assert(2 * kItems <= UINT16_MAX, "two counts must fit 16 bits");

  __device__ static int Lane() { return threadIdx.x % 32; }
  __device__ static int Warp() { return threadIdx.x / 32; }
  __device__ static int Halves(uint32_t v) { return (v & 0xFFFF) + (v >> 16); }

  // Masks of the first `count` of four 16-bit counts.
  __device__ static uint2 Below(int count) {
    const auto pair = [](int n) { return n <= 0 ? 0u : n == 1 ? 0xFFFFu : 0xFFFFFFFFu; };
    return {pair(count), pair(count - 2)};
  }

  // Four blocks' counts of each bucket.
  __device__ void Load(int base, int first) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int b = base + i * kWarps;
      if (b >= buckets_) break;
      four_[i] = __ldcg(reinterpret_cast<const uint2*>(histogram_ + b * width_ + first));
    }
  }

  __device__ void Reduce(int base, const int (&total)[kAtOnce], const int (&before)[kAtOnce],
                         BucketCounts* out) const {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int b = base + i * kWarps;
      if (b >= buckets_) break;
      const int all = __reduce_add_sync(0xFFFFFFFFu, total[i]);
      const int prior = __reduce_add_sync(0xFFFFFFFFu, before[i]);
      if (Lane() == 0) {
        out[b].before = prior;
        out[b].total = all;
      }
    }
  }

  const uint16_t* histogram_;
  int64_t width_;
  int buckets_, blocks_;
  uint2 four_[kAtOnce] = {};
};

// Exclusive sums over the block of the three counts of a bucket a thread; `carry` is added, and
// grows by the totals.
__device__ __forceinline__ BucketCounts ExclusiveSums(BucketCounts v, BucketCounts* warps,
                                                      BucketCounts* carry) {
  const auto add = [](BucketCounts a, BucketCounts b) {
    return BucketCounts{a.here + b.here, a.before + b.before, a.total + b.total};
  };
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  BucketCounts sum = v;
  for (int d = 1; d < 32; d *= 2) {
    const BucketCounts below = {__shfl_up_sync(0xFFFFFFFFu, sum.here, d),
                                __shfl_up_sync(0xFFFFFFFFu, sum.before, d),
                                __shfl_up_sync(0xFFFFFFFFu, sum.total, d)};
    if (lane >= d) sum = add(sum, below);
  }
  __syncthreads();
  if (lane == 31) warps[warp] = sum;
  __syncthreads();
  BucketCounts before = *carry;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before = add(before, warps[w]);
    *carry = add(*carry, warps[w]);
  }
  return {before.here + sum.here - v.here, before.before + sum.before - v.before,
          before.total + sum.total - v.total};
}

// Where the block's items go: starts[warp][bucket], which holds the warps' counts before, in the
// block's own order; and what to add to a place in that order, moves[bucket]. Of the last bucket
// only the items here are known: the blocks before are full.
__device__ __forceinline__ void PlaceBuckets(int buckets, const BucketCounts* counts,
                                             int32_t* starts, int32_t* moves) {
  __shared__ BucketCounts warps[kWarps];
  BucketCounts carry = {0, 0, 0};
  for (int base = 0; base < buckets; base += kThreads) {
    const int b = base + threadIdx.x;
    const bool there = b < buckets, last = b == buckets - 1;
    BucketCounts own = {0, 0, 0};
    int of_warp[kWarps];
    if (there) {
      if (!last) own = counts[b];
      own.here = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        of_warp[w] = starts[w * buckets + b];
        own.here += of_warp[w];
      }
    }
    const BucketCounts at = ExclusiveSums(own, warps, &carry);
    if (!there) continue;
    const int before = last ? static_cast<int>(blockIdx.x) * kItems - at.before : own.before;
    moves[b] = at.total + before - at.here;
    int next = at.here;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      starts[w * buckets + b] = next;
      next += of_warp[w];
    }
  }
  __syncthreads();
}

// The block's items in the order of their buckets, in shared memory.
struct SortedItems {
  int32_t item[kItems];
  uint16_t bucket[kItems];

  __device__ void Fill(const WarpItems& items, int32_t* starts) {
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const int b = items.bucket[r];
      const int begin = b >= 0 ? starts[b] : 0;
      __syncwarp();
      if (b >= 0) {
        const int rank = items.Rank(r);
        item[begin + rank] = items.item[r];
        bucket[begin + rank] = static_cast<uint16_t>(b);
        if (rank == 0) starts[b] = begin + __popc(items.same[r]);
      }
      __syncwarp();
    }
  }
};

// Puts the items in place. `source` and `sizes` are nullptr but in the last pass. Shared memory:
// starts[kWarps][buckets], moves[buckets], counts[buckets].
__global__ void __launch_bounds__(kThreads)
    PlaceKernel(const Pass p, const uint16_t* histogram, int64_t width, int32_t* order,
                int32_t* source, int32_t* sizes, int top_k) {
  extern __shared__ int32_t starts[];
  __shared__ SortedItems sorted;
  int32_t* const moves = starts + kWarps * p.buckets;
  auto* const counts = reinterpret_cast<BucketCounts*>(moves + p.buckets);
  const int warp = threadIdx.x / 32;
  const int64_t list = blockIdx.y, first = int64_t{blockIdx.x} * kItems;
  int32_t* const mine = starts + warp * p.buckets;
  const WarpItems items(p, list, first + warp * (kRounds * 32));
  ClearCounts(starts, kWarps * p.buckets);
  items.Count(mine);
  WaitForPrevious();
  BlockSums(histogram + list * p.buckets * width, width, p.buckets - 1).Add(counts);
  __syncthreads();
  if (sizes != nullptr && blockIdx.x == 0) {
    for (int b = threadIdx.x; b < p.experts; b += kThreads) {
      sizes[list * p.experts + b] = counts[b].total;
    }
  }
  PlaceBuckets(p.buckets, counts, starts, moves);
  sorted.Fill(items, mine);
  __syncthreads();
  const int here = static_cast<int>(min(int64_t{kItems}, p.count - first));
  for (int i = threadIdx.x; i < here; i += kThreads) {
    const int64_t at = list * p.count + moves[sorted.bucket[i]] + i;
    order[at] = sorted.item[i];
    if (source != nullptr) source[at] = sorted.item[i] / top_k;
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
