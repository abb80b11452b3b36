// wgmma: one warpgroup multiplies a 64 x K tile by a K x N tile, both in shared memory, into
// float32 registers.
//
// Both tiles have 128-byte rows with the 128-byte swizzle: 8 rows make an atom of 1024 bytes. A
// (and a K-major B) puts K along the row; a transposed B puts N along it, in blocks of 64 columns.
// A may also have 64-byte rows with the 64-byte swizzle. K is 32 bytes an instruction.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/core/dtype.cuh"
#include "cuda/core/wgmma/registers.cuh"

namespace jaxsparse::ptx {

inline constexpr int kAtomBytes = 1024;

// Shared-memory descriptor of a swizzled tile: `leading` is the stride between 128-byte wide blocks
// along the contiguous axis, used by a transposed operand only; groups of 8 rows are `stride` bytes
// apart along the other axis. The swizzle goes by the address in shared memory: a tile may start at
// any row.
template <int RowBytes = 128>
__device__ __forceinline__ uint64_t TileDescriptor(uint32_t shared, uint32_t leading,
                                                   uint32_t stride = kAtomBytes) {
  static_assert(RowBytes == 128 || RowBytes == 64, "rows are swizzled by their own width");
  constexpr uint64_t kSwizzle = uint64_t{RowBytes == 128 ? 1 : 2} << 62;
  return kSwizzle | (static_cast<uint64_t>(stride >> 4) << 32) |
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
JAXSPARSE_MMA_TYPES(96, 48, "%48", "%49", "%50")
JAXSPARSE_MMA_TYPES(128, 64, "%64", "%65", "%66")
JAXSPARSE_MMA_TYPES(160, 80, "%80", "%81", "%82")
JAXSPARSE_MMA_TYPES(192, 96, "%96", "%97", "%98")
JAXSPARSE_MMA_TYPES(256, 128, "%128", "%129", "%130")
#endif

#undef JAXSPARSE_MMA_TYPES
#undef JAXSPARSE_MMA

}  // namespace jaxsparse::ptx
