// ScaledFragments: A fragments of a step whose K is sorted rows, read from shared memory and
// multiplied by the rows' weights in float32 on the way to the tensor cores.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/core/dtype.cuh"

namespace jaxsparse {

namespace ptx {

// Four 8 x 8 matrices of 16-bit elements, transposed; each lane names one row of 16 bytes.
__device__ __forceinline__ void LoadTransposed(uint32_t (&v)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(shared)
               : "memory");
}

}  // namespace ptx

__device__ __forceinline__ float2 UnpackPair(uint32_t v, __nv_bfloat16) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&v));
}
__device__ __forceinline__ float2 UnpackPair(uint32_t v, __half) {
  return __half22float2(*reinterpret_cast<const __half2*>(&v));
}

// This warp's 16 rows of a block [64 of K, 64 rows] in the 128-byte swizzle, in slices of 16 of K.
template <typename T>
__device__ __forceinline__ void LoadScaledFragments(uint32_t (&a)[4][4], uint32_t block,
                                                    const float* weights) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  const int unit = warp * 2 + lane / 8 % 2;  // 8 rows
#pragma unroll
  for (int slice = 0; slice < 4; ++slice) {
    const int k = slice * 16 + lane / 16 * 8 + lane % 8;
    ptx::LoadTransposed(a[slice], block + k * 128 + ((unit ^ (k % 8)) * 16));
    const float* w = weights + slice * 16 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = UnpackPair(a[slice][i], T());
      const float2 by = *reinterpret_cast<const float2*>(w + i / 2 * 8);
      a[slice][i] = DTypeTraits<T>::Pack(pair.x * by.x, pair.y * by.y);
    }
  }
}

}  // namespace jaxsparse
