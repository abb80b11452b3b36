// wgmma: one warpgroup multiplies a 64 x K tile by a K x N tile, both in shared memory, into
// float32 registers.
//
// Both tiles have 128-byte rows with the 128-byte swizzle: 8 rows make an atom of 1024 bytes. A
// (and a K-major B) puts K along the row; a transposed B puts N along it, in blocks of 64 columns.
// K is 32 bytes an instruction.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/core/dtype.cuh"

namespace jaxsparse::ptx {

inline constexpr int kAtomBytes = 1024;

// Shared-memory descriptor of a swizzled tile: `leading` is the stride between 128-byte wide blocks
// along the contiguous axis, used by a transposed operand only; groups of 8 rows are `stride` bytes
// apart along the other axis. The swizzle goes by the address in shared memory: a tile may start at
// any row.
__device__ __forceinline__ uint64_t TileDescriptor(uint32_t shared, uint32_t leading,
                                                   uint32_t stride = kAtomBytes) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  return kSwizzle128 | (static_cast<uint64_t>(stride >> 4) << 32) |
         (static_cast<uint64_t>(leading >> 4) << 16) | ((shared & 0x3FFFF) >> 4);
}

__device__ __forceinline__ void MmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void MmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Returns once at most `Pending` committed groups are in flight.
template <int Pending>
__device__ __forceinline__ void MmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Tells the compiler that the registers change here, so that it moves nothing across.
template <int Count>
__device__ __forceinline__ void MmaTouch(float (&d)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Mma<T, N>(d, a, b, accumulate): d = a * b + (accumulate ? d : 0).
template <typename T, int N>
__device__ __forceinline__ void Mma(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate);

#define JAXSPARSE_ACC8(i)                                                                     \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define JAXSPARSE_ACC32(i) \
  JAXSPARSE_ACC8(i), JAXSPARSE_ACC8(i + 8), JAXSPARSE_ACC8(i + 16), JAXSPARSE_ACC8(i + 24)

#define JAXSPARSE_REGS_32                                                                 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define JAXSPARSE_REGS_64                                                                 \
  JAXSPARSE_REGS_32                                                                       \
  ", "                                                                                    \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, " \
  "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define JAXSPARSE_REGS_128                                                                \
  JAXSPARSE_REGS_64                                                                       \
  ", "                                                                                    \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, " \
  "%81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, " \
  "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "    \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "  \
  "%126, %127"
#define JAXSPARSE_ACC_32 JAXSPARSE_ACC32(0)
#define JAXSPARSE_ACC_64 JAXSPARSE_ACC32(0), JAXSPARSE_ACC32(32)
#define JAXSPARSE_ACC_128 JAXSPARSE_ACC_64, JAXSPARSE_ACC32(64), JAXSPARSE_ACC32(96)

// The last immediates say whether A and B are transposed; TF32 has no such choice.
#define JAXSPARSE_MMA(TYPE, N, REGS, SHAPE, KIND, A, B, FLAG, TRANSPOSE)                  \
  template <>                                                                             \
  __device__ __forceinline__ void Mma<TYPE, N>(float (&d)[N / 2], uint64_t a, uint64_t b, \
                                               int accumulate) {                          \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " FLAG                                 \
                 ", 0;\nwgmma.mma_async.sync.aligned." SHAPE ".f32." KIND                 \
                 " {" JAXSPARSE_REGS_##REGS "}, " A ", " B ", p, 1, 1" TRANSPOSE ";\n}"   \
                 : JAXSPARSE_ACC_##REGS                                                   \
                 : "l"(a), "l"(b), "r"(accumulate));                                      \
  }
#define JAXSPARSE_MMA_TYPES(N, REGS, A, B, FLAG)                                            \
  JAXSPARSE_MMA(__nv_bfloat16, N, REGS, "m64n" #N "k16", "bf16.bf16", A, B, FLAG, ", 0, 1") \
  JAXSPARSE_MMA(__half, N, REGS, "m64n" #N "k16", "f16.f16", A, B, FLAG, ", 0, 1")          \
  JAXSPARSE_MMA(TF32, N, REGS, "m64n" #N "k8", "tf32.tf32", A, B, FLAG, "")

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
JAXSPARSE_MMA_TYPES(64, 32, "%32", "%33", "%34")
JAXSPARSE_MMA_TYPES(128, 64, "%64", "%65", "%66")
JAXSPARSE_MMA_TYPES(256, 128, "%128", "%129", "%130")
#endif

#undef JAXSPARSE_MMA_TYPES
#undef JAXSPARSE_MMA
#undef JAXSPARSE_ACC_128
#undef JAXSPARSE_ACC_64
#undef JAXSPARSE_ACC_32
#undef JAXSPARSE_REGS_128
#undef JAXSPARSE_REGS_64
#undef JAXSPARSE_REGS_32
#undef JAXSPARSE_ACC32
#undef JAXSPARSE_ACC8

}  // namespace jaxsparse::ptx
