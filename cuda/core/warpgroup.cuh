// What warpgroups, CTAs and clusters need of each other: register shares, named barriers, ranks,
// proxies.
#pragma once

#include <cstdint>

namespace jaxsparse::ptx {

// The number of this warp in its CTA, and of its warpgroup. The compiler does not see that all
// threads of a warp have the same threadIdx.x / 32; a branch on these it takes for uniform, and
// what is the same on either side of it lies in uniform registers, where addresses of barriers, of
// TMA and of the tensor cores are wanted. Converged warps only.
__device__ __forceinline__ int WarpIndex() {
  return __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
}
__device__ __forceinline__ int WarpgroupIndex() {
  return __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
}

// threadIdx.x, read where this stands. What is read once for several bodies of a kernel is spilled
// to local memory, and loaded again in their loops.
__device__ __forceinline__ int ThreadIndex() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

template <int Registers>
__device__ __forceinline__ void RaiseRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

template <int Registers>
__device__ __forceinline__ void LowerRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

// Barrier `id` (1 to 15) among `threads` threads of the CTA.
__device__ __forceinline__ void NamedBarrier(int id, int threads) {
  asm volatile("barrier.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// The same without waiting: counts as one of the threads.
__device__ __forceinline__ void NamedBarrierArrive(int id, int threads) {
  asm volatile("barrier.arrive.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Orders shared memory that ordinary accesses wrote before what the tensor cores and TMA do next.
__device__ __forceinline__ void FenceAsyncProxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ uint32_t ClusterRank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void ClusterSync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// Four floats at the address `shared` of CTA `rank` of the cluster.
__device__ __forceinline__ float4 LoadRemote(uint32_t shared, uint32_t rank) {
  float4 v;
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];\n"
      "}"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(shared), "r"(rank)
      : "memory");
  return v;
}

}  // namespace jaxsparse::ptx
