// wgmma with 32 columns and A in registers: what a tile whose M side is a strip of columns
// multiplies piece by piece. tiles.cuh describes the tiles.
#pragma once

#include <type_traits>

#include "cuda/core/wgmma/tiles.cuh"

namespace jaxsparse::ptx {

// Descriptor of rows of 128 bytes with the 128-byte swizzle, as TileDescriptor makes it; what the
// products of a tile differ in is its low word alone.
__device__ __forceinline__ uint64_t SwizzledDescriptor(uint32_t shared) {
  constexpr uint32_t kHigh = 1u << 30 | kAtomBytes >> 4;
  uint64_t v;
  asm("mov.b64 %0, {%1, %2};" : "=l"(v) : "r"((shared & 0x3FFFF) >> 4), "r"(kHigh));
  return v;
}

// d += a * b: 64 x K by K x 32, K of 32 bytes, B with K contiguous. This lane's part of A, in 16
// bits: rows lane/4 and lane/4 + 8 of its warp's 16 at k = 2*(lane%4) and the next in a[0] and
// a[1], at k + 8 in a[2] and a[3]; in TF32 at k = lane%4, and at k + 4.
template <typename T>
__device__ __forceinline__ void MmaFragment(float (&d)[16], const uint32_t (&a)[4], uint64_t b) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define JAXSPARSE_MMA_FRAGMENT(SHAPE, KIND, ORDER)                                           \
  asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\nwgmma.mma_async.sync.aligned." SHAPE \
               ".f32." KIND                                                                  \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "   \
               "{%16, %17, %18, %19}, %20, p, 1, 1" ORDER ";\n}"                             \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),     \
                 "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),   \
                 "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])                          \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    JAXSPARSE_MMA_FRAGMENT("m64n32k16", "bf16.bf16", ", 0");
  } else if constexpr (std::is_same_v<T, __half>) {
    JAXSPARSE_MMA_FRAGMENT("m64n32k16", "f16.f16", ", 0");
  } else {
    JAXSPARSE_MMA_FRAGMENT("m64n32k8", "tf32.tf32", "");
  }
#undef JAXSPARSE_MMA_FRAGMENT
#endif
}

}  // namespace jaxsparse::ptx
