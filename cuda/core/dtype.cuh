// Element types of the tensor-core kernels and what differs between them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace jaxsparse {

// `sums` plus 1 in each half where `pair`, of any 16-bit dtype, is not zero: halves of binary16,
// which count up to 2048. -0 is zero, NaN is not.
__device__ __forceinline__ uint32_t CountNonZeros(uint32_t pair, uint32_t sums) {
  uint32_t ones;
  asm("set.neu.f16x2.f16x2 %0, %1, %2;" : "=r"(ones) : "r"(pair), "r"(0u));
  asm("add.f16x2 %0, %1, %2;" : "=r"(sums) : "r"(sums), "r"(ones));
  return sums;
}

// float32 storage, products rounded to TF32 by the tensor cores.
struct TF32 {};

template <typename T>
struct DTypeTraits;

template <>
struct DTypeTraits<__nv_bfloat16> {
  static constexpr int kBytes = 2;
  static constexpr bool kTransposableB = true;  // wgmma reads B with either axis contiguous
  static __device__ __forceinline__ uint32_t Pack(float a, float b) {
    const __nv_bfloat162 v = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<const uint32_t*>(&v);
  }
  static __device__ __forceinline__ float2 Unpack(uint32_t v) {
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&v));
  }
  // Of both elements; NaN stays.
  static __device__ __forceinline__ uint32_t Max(uint32_t a, uint32_t b) {
    asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
  }
  static __device__ __forceinline__ uint32_t Min(uint32_t a, uint32_t b) {
    asm("min.NaN.bf16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
  }
};

template <>
struct DTypeTraits<__half> {
  static constexpr int kBytes = 2;
  static constexpr bool kTransposableB = true;
  static __device__ __forceinline__ uint32_t Pack(float a, float b) {
    const __half2 v = __floats2half2_rn(a, b);
    return *reinterpret_cast<const uint32_t*>(&v);
  }
  static __device__ __forceinline__ float2 Unpack(uint32_t v) {
    return __half22float2(*reinterpret_cast<const __half2*>(&v));
  }
  static __device__ __forceinline__ uint32_t Max(uint32_t a, uint32_t b) {
    asm("max.NaN.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
  }
  static __device__ __forceinline__ uint32_t Min(uint32_t a, uint32_t b) {
    asm("min.NaN.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
  }
};

template <>
struct DTypeTraits<TF32> {
  static constexpr int kBytes = 4;
  static constexpr bool kTransposableB = false;  // K must be the contiguous axis
};

}  // namespace jaxsparse
