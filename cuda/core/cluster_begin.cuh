// The beginning of a cluster: its blocks may write to each other only when all of them have begun.
// What a block does alone goes between the two.
#pragma once

namespace jaxsparse::ptx {

// By every thread; does not wait. Orders no data.
__device__ __forceinline__ void ArriveBegun() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}

// Returns when every thread of the cluster has arrived.
__device__ __forceinline__ void WaitBegun() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

}  // namespace jaxsparse::ptx
