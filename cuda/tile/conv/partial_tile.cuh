// PartialTile: unfinished sums of a compute tile on their way between CTAs through global memory.
// Each warp hands its accumulators to the warp of the same number, in fragment order (coalesced, no
// shared memory), behind a flag of its own. The owner adds the parts in a fixed order: no atomics,
// the same result every time.
//
// The flags are not cleared in advance, which would be a kernel of its own in front of every call:
// what is there does not count as a part unless it is the launch's mark, 64 bits that the launcher
// draws (NextMark). Every flag that is set is waited for once, and taken back then: so a captured
// launch, which has the same mark every time it is replayed, finds none of its own.
#pragma once

#include "cuda/tile/conv/params.h"

namespace jaxsparse {

inline constexpr int kConsumerThreads = 256;
inline constexpr int kConsumerWarps = kConsumerThreads / 32;

template <int Blocks, int TileN>
class PartialTile {
 public:
  static constexpr int kFloats = Blocks * 128 * TileN;  // 2 warpgroups x 64 rows a block

  __device__ explicit PartialTile(const ConvParams& p) : p_(p) {}

  // Leaves this thread's accumulators as CTA `cta`'s part.
  __device__ void Put(const float (&acc)[Blocks][TileN / 2], int cta) const {
    float4* part = Part(cta);
#pragma unroll
    for (int i = 0; i < Blocks; ++i) {
#pragma unroll
      for (int j = 0; j < TileN / 8; ++j) {
        const float* v = &acc[i][4 * j];
        __stcg(part + (i * (TileN / 8) + j) * kConsumerThreads,
               make_float4(v[0], v[1], v[2], v[3]));
      }
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(Flag(cta)), "l"(p_.mark) : "memory");
    }
  }

  // Waits for CTA `cta`'s part and adds it.
  __device__ void Add(float (&acc)[Blocks][TileN / 2], int cta) const {
    uint64_t found = 0;
    while (found != p_.mark) {
      asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(found) : "l"(Flag(cta)) : "memory");
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) *Flag(cta) = 0;
    const float4* part = Part(cta);
#pragma unroll
    for (int i = 0; i < Blocks; ++i) {
#pragma unroll
      for (int j = 0; j < TileN / 8; ++j) {
        const float4 v = __ldcg(part + (i * (TileN / 8) + j) * kConsumerThreads);
        acc[i][4 * j] += v.x;
        acc[i][4 * j + 1] += v.y;
        acc[i][4 * j + 2] += v.z;
        acc[i][4 * j + 3] += v.w;
      }
    }
  }

 private:
  __device__ float4* Part(int cta) const {
    return reinterpret_cast<float4*>(p_.parts + static_cast<int64_t>(cta) * kFloats) + threadIdx.x;
  }
  __device__ uint64_t* Flag(int cta) const {
    return p_.flags + cta * kConsumerWarps + threadIdx.x / 32;
  }

  const ConvParams& p_;
};

}  // namespace jaxsparse
