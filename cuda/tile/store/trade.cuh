// Trades among the four lanes that hold one row of an accumulator: pairs of columns for runs of
// eight, which are 16 bytes of 16-bit elements, and back. Before, v[i] of the lane in place q is
// columns 8 * i + 2 * q and the next; after, 8 * q + 2 * i and the next.
#pragma once

#include "cuda/core/matrix_copy.cuh"
#include "cuda/tile/store/quad.cuh"

namespace jaxsparse {

// By shuffles.
struct QuadTrade {
  __device__ __forceinline__ void ToRuns(uint32_t (&v)[4]) const { TransposeQuad(v); }
  __device__ __forceinline__ void ToPairs(uint32_t (&v)[4]) const { TransposeQuad(v); }
};

// Through shared memory, from sm_90 on: two instructions for sixteen. What is executed once a tile
// takes as long as its code takes to arrive: 132 multiprocessors read it at the same time.
class MatrixTrade {
 public:
  static constexpr int kBytes = 512;  // of a warp: 8 rows of 64 bytes

  // `shared`: the bytes of all warps that trade, aligned to 128.
  __device__ explicit MatrixTrade(uint32_t shared) {
    const int thread = ptx::ThreadHere(), lane = thread % 32;
    shared += thread / 32 * kBytes;
    pair_ = shared + Place(lane % 8, lane / 8);
    run_ = shared + Place(lane / 4, lane % 4);
  }

  // Whole warps.
  __device__ __forceinline__ void ToRuns(uint32_t (&v)[4]) const {
    __syncwarp();
    ptx::StoreMatrices(pair_, v);
    __syncwarp();
    ptx::LoadShared16(run_, v);
  }
  __device__ __forceinline__ void ToPairs(uint32_t (&v)[4]) const {
    __syncwarp();
    ptx::StoreShared16(run_, v);
    __syncwarp();
    ptx::LoadMatrices(pair_, v);
  }

 private:
  // Of 16 bytes of a row; turned, so that eight rows meet all banks.
  __device__ static uint32_t Place(int row, int unit) {
    return row * 64 + ((unit ^ (row / 2 % 4)) * 16);
  }

  uint32_t pair_, run_;
};

}  // namespace jaxsparse
