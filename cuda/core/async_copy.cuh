// Asynchronous copies from global to shared memory: cp.async for scattered rows, TMA for boxes.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace jaxsparse::ptx {

// Copies `bytes` (0 or 16) from `source`; the rest of the 16 bytes at `shared` become zero. With 0
// nothing is read.
__device__ __forceinline__ void CopyOrZero16(uint32_t shared, const void* source, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(source),
               "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void PrefetchTensorMap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Keeps what it loads in L2 while it lasts: for operands that every CTA reads.
inline constexpr uint64_t kEvictLast = 0x14F0000000000000ull;

// The box at (column, row) of a two-dimensional tensor; what lies outside the tensor arrives as
// zeros.
__device__ __forceinline__ void LoadBox(uint32_t shared, const CUtensorMap* map, int column,
                                        int row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared),
      "l"(map), "r"(column), "r"(row), "r"(barrier), "l"(kEvictLast)
      : "memory");
}

// As LoadBox, into the same place of every CTA in `ranks`, signalling each one's own barrier.
__device__ __forceinline__ void LoadBoxMulticast(uint32_t shared, const CUtensorMap* map,
                                                 int column, int row, uint32_t barrier,
                                                 uint16_t ranks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(shared),
      "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(ranks), "l"(kEvictLast)
      : "memory");
}

}  // namespace jaxsparse::ptx
