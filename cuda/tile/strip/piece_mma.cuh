// One warpgroup's share of a tile of pieces: four pieces of 32 rows by 64 columns, each of which
// multiplies what it keeps and nothing else. The product is transposed, columns of `b` are its M
// side, for that is where wgmma wants 64; fragments of a slab of `b` are read once for all four.
#pragma once

#include "cuda/core/wgmma/fragments.cuh"
#include "cuda/tile/strip/fragments.cuh"
#include "cuda/tile/strip/pieces.cuh"

namespace jaxsparse {

template <typename T>
class PieceMma {
 public:
  __device__ void Clear() {
#pragma unroll
    for (int j = 0; j < kGroupPieces; ++j) {
#pragma unroll
      for (int i = 0; i < 16; ++i) acc_[j][i] = 0.0f;
    }
  }

  // Multiplies the pieces in `live` with the slab `b`; theirs are the slots from `slot` on, of
  // those at `slots`. Returns when it is done: other warpgroups keep the tensor cores busy.
  __device__ void Multiply(uint32_t b, uint32_t slots, uint32_t slot, uint32_t live) {
    uint32_t fragment[4][4];
    StripFragments<T>::Read(fragment, b);
    Touch();
#pragma unroll
    for (int j = 0; j < kGroupPieces; ++j) {
      if (((live >> j) & 1) == 0) continue;
      ptx::MmaFence();
      const uint32_t rows = slots + slot++ % kPieceSlots * kPieceBytes;
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        ptx::MmaFragment<T>(acc_[j], fragment[q], ptx::SwizzledDescriptor(rows + 32 * q));
      }
    }
    ptx::MmaFence();  // the branches meet here: ptxas puts it in where it is left out
    ptx::MmaCommit();
    ptx::MmaWait<0>();
    Touch();
  }

  // Column 8*i + 2*(lane%4) + e of the share's piece j, as rows of `a` go, is at
  // sums(j)[4*i + 2*h + e], for two columns of `b`, h = 0 and 1.
  __device__ const float (&sums(int j) const)[16] { return acc_[j]; }

 private:
  __device__ void Touch() {
#pragma unroll
    for (int j = 0; j < kGroupPieces; ++j) ptx::MmaTouch(acc_[j]);
  }

  float acc_[kGroupPieces][16];
};

}  // namespace jaxsparse
