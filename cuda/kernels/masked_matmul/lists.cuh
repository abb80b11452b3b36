// Lists of set bits, written by the warps of a block side by side: each counts its share, and
// begins where those before it end.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace jaxsparse {

// Where a warp's part of a list begins, and how long the list is.
struct ListPart {
  int begin, total;
};

// `mine` is what this warp counted. All threads of the block call this; `counts` may be written
// again after a barrier.
template <int Warps>
__device__ __forceinline__ ListPart PartOfWarp(int mine, int (&counts)[Warps]) {
  const int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) counts[warp] = mine;
  __syncthreads();
  ListPart part = {0, 0};
  for (int w = 0; w < Warps; ++w) {
    part.begin += w < warp ? counts[w] : 0;
    part.total += counts[w];
  }
  return part;
}

// Lists the bits of word `w` that are set, from `at` on; returns where the next word's begin. All
// lanes of a warp call this.
__device__ __forceinline__ int ListWord(uint32_t bits, int w, int at, int32_t* list) {
  const int lane = threadIdx.x % 32;
  if ((bits >> lane) & 1) list[at + __popc(bits & ((1u << lane) - 1))] = 32 * w + lane;
  return at + __popc(bits);
}

}  // namespace jaxsparse
