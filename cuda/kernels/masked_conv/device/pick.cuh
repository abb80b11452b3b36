// Pick: which candidate a kernel that chooses runs, from a number that an index wrote or from the
// counts of the lists.
#pragma once

#include <cmath>

#include "cuda/index/cost.cuh"
#include "cuda/kernels/masked_conv/device/params.h"
#include "cuda/tile/store/scatter.cuh"

namespace jaxsparse {

// The configuration of a body among others in one kernel.
template <typename Config>
struct OneOfMany : Config {
  static constexpr Stores kStores =
      Config::kStores == Stores::kEach ? Stores::kAny : Config::kStores;
};

// The candidate to run, the same in every thread of the grid.
class Pick {
 public:
  __device__ explicit Pick(const DeviceParams& p) {
    PrefetchCounts(p);
    const int chosen = p.choice != nullptr ? *p.choice : Cheapest(p);
    const int candidate = chosen < 0 || chosen >= p.candidates ? 0 : chosen;
    variant_ = __shfl_sync(~0u, p.variant[candidate], 0);
    source_ = __shfl_sync(~0u, p.source[candidate], 0);
  }

  __device__ int variant() const { return variant_; }
  __device__ int source() const { return source_; }

 private:
  // The body's first load, on its way while the choice is.
  __device__ static void PrefetchCounts(const DeviceParams& p) {
    if (threadIdx.x >= p.candidates) return;
    const int32_t* count = p.rows[p.source[threadIdx.x]].count;
    if (count != nullptr) asm volatile("prefetch.global.L1 [%0];" ::"l"(count));
  }

  // The first candidate of the least cost; one whose list overflowed costs infinity.
  __device__ static int Cheapest(const DeviceParams& p) {
    const int lane = threadIdx.x % 32;
    float cost = INFINITY;
    if (lane < p.candidates) {
      const RowList& rows = p.rows[p.source[lane]];
      const int count = rows.count == nullptr ? 0 : max(*rows.count, 0);
      const float total = VariantCost(p.costs + kCostColumns * lane, count);
      if (count <= rows.capacity && total < INFINITY) cost = total;
    }
    int best = lane;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(~0u, cost, step);
      const int from = __shfl_xor_sync(~0u, best, step);
      if (other < cost || (other == cost && from < best)) cost = other, best = from;
    }
    return best;
  }

  int variant_, source_;
};

// The description of the list that was picked, in shared memory: a parameter that is found by an
// index is slow to read, and the loading warps have no registers to hold it. All threads; there are
// at least as many as it has words.
__device__ __forceinline__ const RowList& HoldRows(const DeviceParams& p, int source) {
  __shared__ RowList held;
  const auto* from = reinterpret_cast<const uint32_t*>(&p.rows[source]);
  if (threadIdx.x < sizeof(RowList) / sizeof(uint32_t)) {
    reinterpret_cast<uint32_t*>(&held)[threadIdx.x] = from[threadIdx.x];
  }
  __syncthreads();
  return held;
}

}  // namespace jaxsparse
