// Asynchronous copies: cp.async for scattered rows, TMA for boxes, bulk copies for runs of bytes.
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

__device__ __forceinline__ void CopyAsync16(uint32_t shared, const void* source) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(source)
               : "memory");
}

__device__ __forceinline__ void CopyAsync4(uint32_t shared, const void* source) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(source) : "memory");
}

// Returns once every cp.async of this thread has landed.
__device__ __forceinline__ void WaitForCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Makes a group of this thread's copies since the last one.
__device__ __forceinline__ void CloseGroup() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Returns once all groups of this thread but the latest kPending have landed.
template <int kPending>
__device__ __forceinline__ void WaitForGroups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
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

// The box at (channel, x, y, b) of an image tensor. Positions outside of the image, also negative
// ones, arrive as zeros.
__device__ __forceinline__ void LoadImageBox(uint32_t shared, const CUtensorMap* map, int channel,
                                             int x, int y, int b, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared),
      "l"(map), "r"(channel), "r"(x), "r"(y), "r"(b), "r"(barrier)
      : "memory");
}

// Leaves L2 first: for what is not read again soon.
inline constexpr uint64_t kEvictFirst = 0x12F0000000000000ull;

// Copies `bytes` of shared memory to `target`; both addresses and the size are multiples of 16.
__device__ __forceinline__ void StoreBulk(void* target, uint32_t shared, uint32_t bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(
          target),
      "r"(shared), "r"(bytes), "l"(kEvictFirst)
      : "memory");
}

// Returns once every bulk copy that this thread started has read its source. Its target is written
// when the kernel ends.
__device__ __forceinline__ void FinishBulkStores() {
  asm volatile("cp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group.read 0;" ::: "memory");
}

}  // namespace jaxsparse::ptx
