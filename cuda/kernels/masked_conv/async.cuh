// cp.async for kernels that also run on sm_80: copies that zero-fill, and groups of them.
#pragma once

#include <cstdint>

namespace jaxsparse::simt {

__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// 16 bytes of `source`, or zeros where `read` is false: the phantom read. `source` must be a valid
// address either way.
__device__ __forceinline__ void CopyAsync16(uint32_t shared, const void* source, bool read) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(source),
               "r"(read ? 16 : 0)
               : "memory");
}

__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most `kPending` of the latest groups are under way.
template <int kPending>
__device__ __forceinline__ void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace jaxsparse::simt
