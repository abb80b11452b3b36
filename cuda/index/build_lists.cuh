// What a warp does for its list: count, find its place, store, write -1 behind the last; and the
// choice by counts.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/index/cost.cuh"
#include "cuda/index/strips.cuh"
#include "cuda/index/team.cuh"

namespace jaxsparse {

// Where a warp's tiles go in its list, and how many the list has.
struct WarpPlace {
  int32_t before, total;
};

// Which list this warp builds.
__device__ inline int ListOfWarp(const StripArgs& args) {
  const int warp = static_cast<int>(threadIdx.x / 32);
  return static_cast<int>(args.list_of_warp[warp / 16] >> (4 * (warp % 16)) & 15);
}

// The tiles of a warp's share; `first`: becomes this lane's of the first step.
__device__ inline int32_t CountShare(const WarpShare& share, StripTiles* first) {
  *first = {0, 0};
  if (share.first() >= share.stop()) return 0;
  int32_t sum = 0;
#pragma unroll 1
  for (int32_t word = share.first(); word < share.stop(); word += 32) {
    const StripTiles tiles = share.Test(word);
    if (word == share.first()) *first = tiles;
    sum += __popc(tiles.bits);
  }
  return __reduce_add_sync(~0u, sum);
}

// The sums of this block's warps.
__device__ inline int32_t* WarpSums() {
  __shared__ int32_t sums[kMaxIndexWarps];
  return sums;
}

// This lane's part of a list's sum over the block's warps: lane w holds warp w's.
__device__ inline int32_t WarpSum(const StripList& list) {
  const int lane = threadIdx.x % 32;
  const bool ours = lane >= list.first_warp && lane < list.first_warp + list.warps;
  return ours ? WarpSums()[lane] : 0;
}

// A warp's place, from the sums of its block's warps and of its team's blocks. Every thread calls.
template <class Team>
__device__ WarpPlace FindPlace(const StripArgs& args, const Team& team, int64_t turn, int t,
                               int32_t mine) {
  const StripList& list = args.list[t];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane == 0) WarpSums()[warp] = mine;
  __syncthreads();
  const int32_t sum = WarpSum(list);
  WarpPlace place{__reduce_add_sync(~0u, lane < warp ? sum : 0), __reduce_add_sync(~0u, sum)};
  const bool leads = warp == list.first_warp;
  if (leads) team.Publish(turn, t, place.total);
  team.Wait(leads);
  if (Team::kMaxBlocks == 1) return place;
  int32_t before = 0, total = 0;
#pragma unroll
  for (int k = 0; k < (Team::kMaxBlocks + 31) / 32; ++k) {  // all reads in flight together
    const int32_t block = lane + 32 * k;
    const int32_t other = block < args.blocks ? team.Read(turn, t, block) : 0;
    total += other;
    if (block < team.rank()) before += other;
  }
  return {place.before + __reduce_add_sync(~0u, before), __reduce_add_sync(~0u, total)};
}

// The sum over this lane and those before it.
__device__ inline int32_t WarpScan(int32_t value) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 1; k < 32; k *= 2) {
    const int32_t left = __shfl_up_sync(~0u, value, k);
    if (lane >= k) value += left;
  }
  return value;
}

// Tests the warp's words again (but for the first step) and stores their tiles from `place` on.
__device__ inline void StoreShare(const WarpShare& share, const StripStore& store,
                                  const StripList& list, int32_t* ids, StripTiles first,
                                  int32_t place) {
  const int parts = (32 >> list.tw_log2) > StripStore::kMostTiles ? 2 : 1;
#pragma unroll 1
  for (int32_t word = share.first(); word < share.stop(); word += 32) {
    const StripTiles words = word == share.first() ? first : share.Test(word);
#pragma unroll 1
    for (int part = 0; part < parts && word + 16 * part < share.stop(); ++part) {
      const StripTiles tiles = parts == 1 ? words : HalfWords(words, part);
      const int32_t own = __popc(tiles.bits), sum = WarpScan(own);
      const int32_t all = __shfl_sync(~0u, sum, 31);
      if (all != 0) store.Store(list, ids, tiles, sum - own, all, place);
      place += all;
    }
  }
}

// -1 behind the entries: the warps of a list in all blocks take turns of 32 x 4 places.
__device__ inline void FillTail(const StripList& list, int32_t* ids, uint32_t total, int32_t rank,
                                int32_t blocks) {
  if (total >= list.capacity) return;
  const uint32_t part = threadIdx.x / 32 - list.first_warp;
  const uint32_t thread = (rank * list.warps + part) * 32 + threadIdx.x % 32;
  const uint32_t threads = blocks * list.warps * 32;
  // Quads lie at places that are `skew` modulo 4; the first may begin before the tail.
  const uint32_t skew = (0u - static_cast<uint32_t>(reinterpret_cast<uintptr_t>(ids) / 4)) % 4;
#pragma unroll 1
  for (uint32_t i = (total + 4 - skew) / 4 * 4 + 4 * thread; i < list.capacity + 4;
       i += 4 * threads) {
    const uint32_t at = i + skew - 4;
    if (at + 4 <= list.capacity && at >= total && at < list.capacity) {
      *reinterpret_cast<int4*>(ids + at) = make_int4(-1, -1, -1, -1);
    } else {
#pragma unroll 1
      for (uint32_t k = at; k != at + 4; ++k) {
        if (k >= total && k < list.capacity) ids[k] = -1;
      }
    }
  }
}

// A row of costs, in registers.
struct CostRow {
  float at[kCostColumns];

  CostRow() = default;
  // Of this lane's variant of the 32 from `first` on; the last one's where there are fewer.
  __device__ CostRow(const StripArgs& args, int64_t mask, int32_t first) {
    const int32_t v = min(first + static_cast<int32_t>(threadIdx.x % 32), args.variants - 1);
    const float* row = args.costs + kCostColumns * (mask * args.variants + v);
#pragma unroll
    for (int c = 0; c < kCostColumns; ++c) at[c] = __ldg(row + c);
  }

  // What the variant costs where lane t of the warp holds list t's `total`; infinity where its list
  // overflowed.
  __device__ float Cost(const StripArgs& args, uint32_t total) const {
    const float named = at[2];
    const bool known = named >= 0.0f && named < static_cast<float>(args.sizes);
    const int t = known ? __float2int_rz(named) : 0;
    const uint32_t count = __shfl_sync(~0u, total, t);
    if (named != static_cast<float>(t)) return at[0];
    return count > args.list[t].capacity ? INFINITY : VariantCost(at, static_cast<int32_t>(count));
  }
};

// The first variant of the least cost. One warp does it; its lane t holds list t's `total`, `row`
// is of the first 32 variants.
__device__ inline void Choose(const StripArgs& args, int64_t mask, uint32_t total, CostRow row) {
  const int lane = threadIdx.x % 32;
  float best = INFINITY;
  int32_t choice = INT32_MAX;
#pragma unroll 1
  for (int32_t first = 0; first < args.variants; first += 32) {
    const float cost = (first == 0 ? row : CostRow(args, mask, first)).Cost(args, total);
    if (cost < best && first + lane < args.variants) {
      best = cost;
      choice = first + lane;
    }
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(~0u, best, step);
    const int32_t from = __shfl_xor_sync(~0u, choice, step);
    if (other < best || (other == best && from < choice)) {
      best = other;
      choice = from;
    }
  }
  if (lane == 0) args.choice[mask] = choice == INT32_MAX ? 0 : choice;
}

}  // namespace jaxsparse
