// What the executors share that gather x from shared memory: how a few rows of x lie there, 8 of
// them side by side in the 16 bytes of an input, and the products of one of its inputs.
#pragma once

#include <cstdint>

#include "cuda/kernels/pruned_matmul/fragments.cuh"

namespace jaxsparse::gather {

// How x lies: rows of an input that one load takes, and how many such planes there are.
template <int kRows>
struct Plane {
  static constexpr int kWidth = kRows < 8 ? kRows : 8;
  static constexpr int kCount = kRows / kWidth;
  static constexpr int kBytes = kRows == 1 ? 4 : 2 * kWidth;  // of an input; one row lies in float
};

template <typename T>
__device__ __forceinline__ float LowHalf(uint32_t pair);
template <>
__device__ __forceinline__ float LowHalf<__nv_bfloat16>(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
template <>
__device__ __forceinline__ float LowHalf<__half>(uint32_t pair) {
  return __half2float(__ushort_as_half(static_cast<uint16_t>(pair)));
}

template <typename T>
__device__ __forceinline__ float HighHalf(uint32_t pair);
template <>
__device__ __forceinline__ float HighHalf<__nv_bfloat16>(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}
template <>
__device__ __forceinline__ float HighHalf<__half>(uint32_t pair) {
  return __half2float(__ushort_as_half(static_cast<uint16_t>(pair >> 16)));
}

__device__ __forceinline__ void Store32(uint32_t address, uint32_t v) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}

__device__ __forceinline__ void Store128(uint32_t address, const uint32_t (&v)[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v[0]), "r"(v[1]),
               "r"(v[2]), "r"(v[3])
               : "memory");
}

// Eight neighbouring inputs of a row, zeros where there are none.
template <typename T>
__device__ __forceinline__ uint4 LoadEight(const PrunedArgs& args, int64_t row, int64_t input) {
  if (row >= args.m || input >= args.k) return {0, 0, 0, 0};
  return __ldg(
      reinterpret_cast<const uint4*>(static_cast<const T*>(args.x) + row * args.k + input));
}

// The lane's rows of one input of a plane.
template <typename T, int kRows>
__device__ __forceinline__ void MultiplyInput(uint32_t address, float value,
                                              float (&sums)[Plane<kRows>::kWidth]) {
  constexpr int kWidth = Plane<kRows>::kWidth;
  if constexpr (kWidth == 1) {
    sums[0] = fmaf(__uint_as_float(fragment::Load32(address)), value, sums[0]);
  } else {
    uint32_t pairs[kWidth / 2];
    if constexpr (kWidth == 8) {
      const uint4 v = fragment::Load128(address);
      pairs[0] = v.x, pairs[1] = v.y, pairs[2] = v.z, pairs[3] = v.w;
    } else if constexpr (kWidth == 4) {
      asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                   : "=r"(pairs[0]), "=r"(pairs[1])
                   : "r"(address));
    } else {
      pairs[0] = fragment::Load32(address);
    }
#pragma unroll
    for (int i = 0; i < kWidth; i += 2) {
      sums[i] = fmaf(LowHalf<T>(pairs[i / 2]), value, sums[i]);
      sums[i + 1] = fmaf(HighHalf<T>(pairs[i / 2]), value, sums[i + 1]);
    }
  }
}

}  // namespace jaxsparse::gather
