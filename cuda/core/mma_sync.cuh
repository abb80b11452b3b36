// The tensor cores of sm_80 and later: mma.sync.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/core/dtype.cuh"
#include "cuda/core/matrix_copy.cuh"

namespace jaxsparse::ptx {

// c += a * b: 16 rows by 8 columns, 32 bytes of K (16 elements of 16 bits, 8 of TF32). c: rows
// l / 4 and l / 4 + 8, columns 2 * (l % 4) and the next.
template <typename T>
__device__ __forceinline__ void MmaSync(float* c, const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

#define JAXSPARSE_MMA_SYNC(TYPE, SHAPE)                                                        \
  template <>                                                                                  \
  __device__ __forceinline__ void MmaSync<TYPE>(float* c, const uint32_t (&a)[4], uint32_t b0, \
                                                uint32_t b1) {                                 \
    asm("mma.sync.aligned." SHAPE                                                              \
        " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                     \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                       \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                       \
  }
JAXSPARSE_MMA_SYNC(__nv_bfloat16, "m16n8k16.row.col.f32.bf16.bf16.f32")
JAXSPARSE_MMA_SYNC(__half, "m16n8k16.row.col.f32.f16.f16.f32")
JAXSPARSE_MMA_SYNC(TF32, "m16n8k8.row.col.f32.tf32.tf32.f32")
#undef JAXSPARSE_MMA_SYNC

}  // namespace jaxsparse::ptx
