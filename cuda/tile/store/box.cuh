// BoxStore: one warp's 16 rows of a compute tile to consecutive rows of a 16-bit matrix, through
// shared memory and TMA: the warp goes on while the rows travel.
#pragma once

#include <cuda.h>

#include "cuda/core/dtype.cuh"
#include "cuda/core/matrix_copy.cuh"
#include "cuda/core/mbarrier.cuh"
#include "cuda/core/warpgroup.cuh"

namespace jaxsparse {

namespace ptx {

__device__ __forceinline__ void StoreBox(const CUtensorMap* map, uint32_t shared, int column,
                                         int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];\n"
      "cp.async.bulk.commit_group;" ::"l"(map),
      "r"(column), "r"(row), "r"(shared)
      : "memory");
}

// Returns once at most `Pending` boxes of this thread are still to be read from shared memory.
template <int Pending>
__device__ __forceinline__ void WaitBoxesRead() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

}  // namespace ptx

inline constexpr int kStoreRows = 16, kStoreColumns = 64;  // of a box
inline constexpr int kStoreBytes = kStoreRows * kStoreColumns * 2;

template <typename T, int TileN>
class BoxStore {
 public:
  static constexpr int kBuffers = 2;
  static constexpr int kWarpBytes = kBuffers * kStoreBytes;
  static constexpr int kBlocks = TileN / kStoreColumns;
  static constexpr int kBlockWords = kStoreColumns / 4;  // of a thread, two columns a word
  static_assert(TileN % (kBuffers * kStoreColumns) == 0, "a tile must take its buffers in turn");

  // `shared` is this warp's buffers, aligned to 1024 bytes.
  __device__ BoxStore(const CUtensorMap* map, uint32_t shared) : map_(map), shared_(shared) {
    const int lane = threadIdx.x % 32, row = lane / 8 % 2 * 8 + lane % 8;
    line_ = row * 128;
    place_ = lane / 16;
    turn_ = row % 8;
  }

  // This thread's words of block `block` of the accumulators.
  __device__ static void Pack(const float (&acc)[TileN / 2], int block,
                              uint32_t (&words)[kBlockWords]) {
#pragma unroll
    for (int i = 0; i < kBlockWords; ++i) {
      const int at = 2 * (block * kBlockWords + i);
      words[i] = DTypeTraits<T>::Pack(acc[at], acc[at + 1]);
    }
  }

  // Block `block` of a tile to the 16 rows from `row` on.
  __device__ void StoreBlock(const uint32_t (&words)[kBlockWords], int block, int row,
                             int column) const {
    const uint32_t buffer = shared_ + block % kBuffers * kStoreBytes;
    if (threadIdx.x % 32 == 0) ptx::WaitBoxesRead<kBuffers - 1>();
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kStoreColumns / 8; j += 2) {
      const uint32_t v[4] = {words[2 * j], words[2 * j + 1], words[2 * j + 2], words[2 * j + 3]};
      ptx::StoreMatrices(buffer + line_ + (((j + place_) ^ turn_) * 16), v);
    }
    ptx::FenceAsyncProxy();
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      ptx::StoreBox(map_, buffer, column + block * kStoreColumns, row);
    }
  }

  // The warp's accumulators to the 16 rows from `row` on.
  __device__ void Store(const float (&acc)[TileN / 2], int row, int column) const {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      uint32_t words[kBlockWords];
      Pack(acc, block, words);
      StoreBlock(words, block, row, column);
    }
  }

  // Before the CTA leaves: its shared memory is read until then.
  __device__ void Finish() const {
    if (threadIdx.x % 32 == 0) ptx::WaitBoxesRead<0>();
  }

 private:
  const CUtensorMap* map_;
  uint32_t shared_;
  int line_, place_, turn_;
};

}  // namespace jaxsparse
