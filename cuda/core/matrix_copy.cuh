// Shared memory to registers and back: 8 x 8 matrices of 16-bit elements, a warp at a time, and 16
// bytes a lane.
#pragma once

#include <cstdint>

namespace jaxsparse::ptx {

// threadIdx.x, asked for where it stands: what follows from it is worked out there and lies in no
// register before.
__device__ __forceinline__ int ThreadHere() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// Four blocks of 8 rows of 16 bytes; lane l names row l % 8 of block l / 8 and gets, of every
// block, the 4 bytes l % 4 of row l / 4.
__device__ __forceinline__ void LoadMatrices(uint32_t shared, uint32_t (&out)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared)
               : "memory");
}

// The same of 16-bit elements, each block transposed.
__device__ __forceinline__ void LoadMatricesTransposed(uint32_t shared, uint32_t (&out)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared)
               : "memory");
}

// The way back of LoadMatrices, from sm_90 on.
__device__ __forceinline__ void StoreMatrices(uint32_t shared, const uint32_t (&v)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared),
               "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
               : "memory");
}

// The way back of LoadMatricesTransposed, from sm_90 on.
__device__ __forceinline__ void StoreMatricesTransposed(uint32_t shared, const uint32_t (&v)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared),
      "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
      : "memory");
}

// A block of 8 x 8 in registers, as LoadMatrices leaves it, transposed.
__device__ __forceinline__ uint32_t TransposedMatrix(uint32_t v) {
  uint32_t out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(v));
  return out;
}

__device__ __forceinline__ void LoadShared16(uint32_t shared, uint32_t (&out)[4]) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared)
               : "memory");
}
__device__ __forceinline__ void StoreShared16(uint32_t shared, const uint32_t (&v)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(v[0]), "r"(v[1]),
               "r"(v[2]), "r"(v[3])
               : "memory");
}

}  // namespace jaxsparse::ptx
