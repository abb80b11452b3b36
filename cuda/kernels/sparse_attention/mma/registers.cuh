// Single instructions of the attention kernels.
#pragma once

#include <cstdint>

namespace jaxsparse::ptx {

__device__ __forceinline__ uint32_t LoadShared4(uint32_t shared) {
  uint32_t v;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(shared) : "memory");
  return v;
}

// 2^v to about two units in the last place.
__device__ __forceinline__ float Exp2(float v) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(v));
  return out;
}

// To the nearest TF32.
__device__ __forceinline__ uint32_t RoundToTF32(float v) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
  return bits;
}

}  // namespace jaxsparse::ptx
