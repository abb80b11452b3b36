// wgmma in TF32 with A in registers: the way to multiply a matrix whose K is not the contiguous
// axis, as its fragments are read from shared memory with ordinary loads.
#pragma once

#include "cuda/core/wgmma/tiles.cuh"

namespace jaxsparse::ptx {

__device__ __forceinline__ uint32_t RoundToTF32(float v) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
  return bits;
}

// d = a * b + (accumulate ? d : 0): 64 x 8 by 8 x 64, B with K contiguous. This lane holds of A the
// rows lane/4 and lane/4 + 8 of its warp's 16 at k = lane%4 in a[0] and a[1], and at k + 4 in a[2]
// and a[3].
__device__ __forceinline__ void MmaTF32(float (&d)[32], const uint32_t (&a)[4], uint64_t b,
                                        int accumulate) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
#endif
}

}  // namespace jaxsparse::ptx
