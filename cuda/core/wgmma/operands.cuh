// wgmma with every order of operands: A from shared memory with either axis contiguous or from
// registers, B with either axis contiguous. tiles.cuh describes the tiles.
#pragma once

#include <type_traits>

#include "cuda/core/wgmma/registers.cuh"
#include "cuda/core/wgmma/tiles.cuh"

namespace jaxsparse::ptx {

// FLAG is the number of the operand that says whether to accumulate; INPUTS name A, B and the
// orders.
#define JAXSPARSE_MMA(REGS, SHAPE, KIND, FLAG, INPUTS, ...)                                        \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #FLAG                                          \
               ", 0;\nwgmma.mma_async.sync.aligned." SHAPE ".f32." KIND " {" JAXSPARSE_REGS_##REGS \
               "}, " INPUTS ";\n}"                                                                 \
               : JAXSPARSE_ACC_##REGS                                                              \
               : __VA_ARGS__)

// d = a * b + (accumulate ? d : 0). A is 64 x K, rows contiguous in K, or in M when TransposeA; B
// is K x N, contiguous in K, or in N when TransposeB. TF32 knows neither transposition.
template <typename T, int N, bool TransposeA, bool TransposeB>
__device__ __forceinline__ void MmaShared(float (&d)[N / 2], uint64_t a, uint64_t b,
                                          int accumulate) {
  static_assert(N == 64 || N == 128 || N == 160 || N == 192 || N == 256,
                "the table of instructions has these N");
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define JAXSPARSE_SHARED(SHAPE, KIND)                                                            \
  if constexpr (N == 192) {                                                                      \
    JAXSPARSE_MMA(96, "m64n192" SHAPE, KIND, 98, "%96, %97, p, 1, 1, %99, %100", "l"(a), "l"(b), \
                  "r"(accumulate), "n"(TransposeA), "n"(TransposeB));                            \
  } else if constexpr (N == 160) {                                                               \
    JAXSPARSE_MMA(80, "m64n160" SHAPE, KIND, 82, "%80, %81, p, 1, 1, %83, %84", "l"(a), "l"(b),  \
                  "r"(accumulate), "n"(TransposeA), "n"(TransposeB));                            \
  } else if constexpr (N == 256) {                                                               \
    JAXSPARSE_MMA(128, "m64n256" SHAPE, KIND, 130, "%128, %129, p, 1, 1, %131, %132", "l"(a),    \
                  "l"(b), "r"(accumulate), "n"(TransposeA), "n"(TransposeB));                    \
  } else if constexpr (N == 128) {                                                               \
    JAXSPARSE_MMA(64, "m64n128" SHAPE, KIND, 66, "%64, %65, p, 1, 1, %67, %68", "l"(a), "l"(b),  \
                  "r"(accumulate), "n"(TransposeA), "n"(TransposeB));                            \
  } else {                                                                                       \
    JAXSPARSE_MMA(32, "m64n64" SHAPE, KIND, 34, "%32, %33, p, 1, 1, %35, %36", "l"(a), "l"(b),   \
                  "r"(accumulate), "n"(TransposeA), "n"(TransposeB));                            \
  }
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    JAXSPARSE_SHARED("k16", "bf16.bf16")
  } else if constexpr (std::is_same_v<T, __half>) {
    JAXSPARSE_SHARED("k16", "f16.f16")
  } else {
    static_assert(!TransposeA && !TransposeB, "TF32 operands have K contiguous");
    Mma<T, N>(d, a, b, accumulate);
  }
#undef JAXSPARSE_SHARED
#endif
}

// As MmaShared, with this warp's 16 x 16 fragment of A in registers.
template <typename T, int N, bool TransposeB>
__device__ __forceinline__ void MmaRegisters(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b,
                                             int accumulate) {
  static_assert(N == 64 || N == 128 || N == 256, "the table of instructions has these N");
  static_assert(!std::is_same_v<T, TF32>, "A fragments are of 16-bit types");
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define JAXSPARSE_REGISTERS(KIND)                                                                  \
  if constexpr (N == 256) {                                                                        \
    JAXSPARSE_MMA(128, "m64n256k16", KIND, 133, "{%128, %129, %130, %131}, %132, p, 1, 1, %134",   \
                  "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),             \
                  "n"(TransposeB));                                                                \
  } else if constexpr (N == 64) {                                                                  \
    JAXSPARSE_MMA(32, "m64n64k16", KIND, 37, "{%32, %33, %34, %35}, %36, p, 1, 1, %38", "r"(a[0]), \
                  "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(TransposeB));      \
  } else {                                                                                         \
    JAXSPARSE_MMA(64, "m64n128k16", KIND, 69, "{%64, %65, %66, %67}, %68, p, 1, 1, %70",           \
                  "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),             \
                  "n"(TransposeB));                                                                \
  }
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    JAXSPARSE_REGISTERS("bf16.bf16")
  } else {
    JAXSPARSE_REGISTERS("f16.f16")
  }
#undef JAXSPARSE_REGISTERS
#endif
}

#undef JAXSPARSE_MMA

}  // namespace jaxsparse::ptx
