// OperandMma: one warpgroup's 64 rows of a compute tile, TileN columns in registers; a K step is
// 128 bytes. The operands lie in shared memory in either order, or A comes as fragments in
// registers.
#pragma once

#include "cuda/core/wgmma/operands.cuh"

namespace jaxsparse {

// TransposeA: A lies as [K, 64], else as [64, K]; TransposeB: B lies as [K, N] in blocks of 64
// columns, else as [N, K].
template <typename T, int TileN, bool TransposeA, bool TransposeB>
class OperandMma {
 public:
  static constexpr int kSlices = 4;  // instructions a step: 32 bytes of K each

  // Starts the products of one step. Asynchronous: see Retire.
  __device__ void Multiply(uint32_t a, uint32_t b) {
    const uint64_t da = ptx::TileDescriptor(a, 0);
    const uint64_t db = ptx::TileDescriptor(b, TransposeB ? 64 * 128 : 0);
    ptx::MmaTouch(acc);
    ptx::MmaFence();
#pragma unroll
    for (int k = 0; k < kSlices; ++k) {
      ptx::MmaShared<T, TileN, TransposeA, TransposeB>(acc, da + k * kStepA / 16,
                                                       db + k * kStepB / 16, accumulate_);
      accumulate_ = 1;
    }
    ptx::MmaCommit();
    ptx::MmaTouch(acc);
  }

  // The same with A's fragments, which must stay as they are until the step is retired.
  __device__ void MultiplyFragments(uint32_t (&a)[kSlices][4], uint32_t b) {
    const uint64_t db = ptx::TileDescriptor(b, TransposeB ? 64 * 128 : 0);
    ptx::MmaTouch(acc);
    ptx::MmaFence();
#pragma unroll
    for (int k = 0; k < kSlices; ++k) {
      ptx::MmaRegisters<T, TileN, TransposeB>(acc, a[k], db + k * kStepB / 16, accumulate_);
      accumulate_ = 1;
    }
    ptx::MmaCommit();
    ptx::MmaTouch(acc);
  }

  // Waits until at most `Pending` steps are being multiplied.
  template <int Pending>
  __device__ void Retire() {
    ptx::MmaWait<Pending>();
    ptx::MmaTouch(acc);
  }

  // The next product starts a new sum.
  __device__ void Clear() { accumulate_ = 0; }

  // Column 8*j + 2*(lane%4) + e of row 16*warp + lane/4 + 8*h is acc[4*j + 2*h + e].
  float acc[TileN / 2];

 private:
  static constexpr int kStepA = TransposeA ? 16 * 128 : 32;
  static constexpr int kStepB = TransposeB ? 16 * 128 : 32;

  int accumulate_ = 0;
};

}  // namespace jaxsparse
