// Bulk copies from global to shared memory: a run of bytes, in the order in which it lies.
#pragma once

#include <cstdint>

namespace jaxsparse::ptx {

// Copies `bytes` from `source`; addresses and size are multiples of 16. `barrier` expects them.
__device__ __forceinline__ void LoadBulk(uint32_t shared, const void* source, uint32_t bytes,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared),
      "l"(source), "r"(bytes), "r"(barrier)
      : "memory");
}

}  // namespace jaxsparse::ptx
