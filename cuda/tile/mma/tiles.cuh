// TileMma: one warpgroup's part of the compute tile, Blocks x 64 rows by TileN columns, accumulated
// in registers.
#pragma once

#include "cuda/core/wgmma/tiles.cuh"

namespace jaxsparse {

// `BlockBytes` lie between two 64-row blocks of A.
template <typename T, int Blocks, int TileN, int BlockBytes = 64 * 128>
class TileMma {
 public:
  static constexpr int kRows = 64 * Blocks;

  // Starts the products of one stage: `a` is this warpgroup's rows, `b` the whole B tile. Groups of
  // 8 rows of A are `a_stride` bytes apart; rows of 64 bytes take half of B's K. Asynchronous: see
  // Retire.
  template <int RowBytes = 128>
  __device__ void Multiply(uint32_t a, uint32_t b, uint32_t a_stride = ptx::kAtomBytes) {
    const uint64_t da = ptx::TileDescriptor<RowBytes>(a, 0, a_stride);
    const uint64_t db = ptx::TileDescriptor(b, kTransposed ? 64 * 128 : 0);
#pragma unroll
    for (int i = 0; i < Blocks; ++i) ptx::MmaTouch(acc[i]);
    ptx::MmaFence();
#pragma unroll
    for (int k = 0; k < RowBytes / 32; ++k) {
#pragma unroll
      for (int i = 0; i < Blocks; ++i) {
        ptx::Mma<T, TileN>(acc[i], da + (i * BlockBytes + k * 32) / 16, db + k * kStepB / 16,
                           accumulate_);
      }
      accumulate_ = 1;
    }
    ptx::MmaCommit();
#pragma unroll
    for (int i = 0; i < Blocks; ++i) ptx::MmaTouch(acc[i]);
  }

  // Waits until at most `Pending` stages are being multiplied: the operands of the others are free
  // again.
  template <int Pending>
  __device__ void Retire() {
    ptx::MmaWait<Pending>();
#pragma unroll
    for (int i = 0; i < Blocks; ++i) ptx::MmaTouch(acc[i]);
  }

  // The next product starts a new sum.
  __device__ void Clear() { accumulate_ = 0; }

  // Column 8*j + 2*(lane%4) + e of row 16*warp + lane/4 + 8*h of block i is acc[i][4*j + 2*h + e].
  float acc[Blocks][TileN / 2];

 private:
  static constexpr bool kTransposed = DTypeTraits<T>::kTransposableB;
  static constexpr int kStepB =
      kTransposed ? 16 * 128 : 32;  // 32 bytes of K: 16 rows, or along the row
  static_assert(Blocks * TileN <= 256, "the accumulators of a warpgroup are at most 128 registers");

  int accumulate_ = 0;
};

}  // namespace jaxsparse
