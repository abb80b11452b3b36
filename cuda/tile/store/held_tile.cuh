// HeldTile: a finished tile, packed in registers, that leaves block by block while the tensor cores
// work on the next one.
#pragma once

#include "cuda/tile/store/box.cuh"

namespace jaxsparse {

template <typename T, int TileN>
class HeldTile {
 public:
  using Boxes = BoxStore<T, TileN>;

  __device__ explicit HeldTile(const Boxes& boxes) : boxes_(boxes) {}

  // The warp's accumulators, for the 16 rows from `row` on. Nothing is held yet.
  __device__ void Hold(const float (&acc)[TileN / 2], int row, int column) {
#pragma unroll
    for (int b = 0; b < Boxes::kBlocks; ++b) Boxes::Pack(acc, b, words_[b]);
    row_ = row;
    column_ = column;
  }

  // Called after the start of each of the first kBlocks of `steps` steps: a block leaves, or, where
  // there are too few steps, all of them.
  __device__ void Leave(int step, int steps) {
    if (row_ < 0) return;
#pragma unroll
    for (int b = 0; b < Boxes::kBlocks; ++b) {
      if (step == b || (step == 0 && steps < Boxes::kBlocks)) {
        boxes_.StoreBlock(words_[b], b, row_, column_);
      }
    }
    if (steps < Boxes::kBlocks || step == Boxes::kBlocks - 1) row_ = -1;
  }

 private:
  const Boxes& boxes_;
  uint32_t words_[Boxes::kBlocks][Boxes::kBlockWords];
  int row_ = -1, column_ = 0;
};

}  // namespace jaxsparse
