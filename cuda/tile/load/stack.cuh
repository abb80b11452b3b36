// StackLoad: TMA fills B tiles from a stack of matrices, in the order in which they lie in memory:
// [K, N] as blocks of 64 columns, or [N, K] as rows of 128 bytes of K.
#pragma once

#include "cuda/core/async_copy.cuh"
#include "cuda/core/dtype.cuh"
#include "cuda/core/mbarrier.cuh"

namespace jaxsparse {

namespace ptx {

// The box at (column, row) of matrix `which` of a stack; zeros outside of the matrix.
__device__ __forceinline__ void LoadStackBox(uint32_t shared, const CUtensorMap* map, int column,
                                             int row, int which, uint32_t barrier,
                                             uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared),
      "l"(map), "r"(column), "r"(row), "r"(which), "r"(barrier), "l"(policy)
      : "memory");
}

}  // namespace ptx

// KMajor: the matrices are [N, K].
template <typename T, int TileN, bool KMajor>
class StackLoad {
 public:
  static constexpr int kStepElements = 128 / DTypeTraits<T>::kBytes;  // of K
  static constexpr int kBytes = TileN * 128;
  static constexpr int kBoxes = KMajor ? 1 : TileN / 64;
  static_assert(KMajor || DTypeTraits<T>::kTransposableB, "TF32 weights have K contiguous");
  static_assert(TileN <= 256, "a box has at most 256 rows");

  __device__ StackLoad(const CUtensorMap* map, bool read_once)
      : map_(map), policy_(read_once ? kReadOnce : ptx::kEvictLast) {}

  template <class Maps>
  __device__ StackLoad(const Maps& maps, bool read_once) : StackLoad(&maps.rhs, read_once) {}

  // Box `box` of the tile of matrix `which` that starts at column `n`, K step `step`.
  __device__ void Load(uint32_t shared, int which, int n, int step, int box,
                       uint32_t barrier) const {
    const int k = step * kStepElements;
    if constexpr (KMajor) {
      ptx::LoadStackBox(shared, map_, k, n, which, barrier, policy_);
    } else {
      ptx::LoadStackBox(shared + box * 64 * 128, map_, n + box * 64, k, which, barrier, policy_);
    }
  }

 private:
  static constexpr uint64_t kReadOnce = 0x12F0000000000000ull;  // L2 drops it first

  const CUtensorMap* map_;
  uint64_t policy_;
};

// PairLoad: two stacks of [K, N] matrices side by side: half of the tile's columns from each, the
// same ones.
template <typename T, int TileN>
class PairLoad {
 public:
  using Half = StackLoad<T, TileN / 2, false>;
  static constexpr int kStepElements = Half::kStepElements;
  static constexpr int kBytes = 2 * Half::kBytes;
  static constexpr int kBoxes = 2 * Half::kBoxes;

  template <class Maps>
  __device__ PairLoad(const Maps& maps, bool read_once)
      : first_(&maps.rhs, read_once), second_(&maps.second, read_once) {}

  __device__ void Load(uint32_t shared, int which, int n, int step, int box,
                       uint32_t barrier) const {
    if (box < Half::kBoxes) {
      first_.Load(shared, which, n, step, box, barrier);
    } else {
      second_.Load(shared + Half::kBytes, which, n, step, box - Half::kBoxes, barrier);
    }
  }

 private:
  Half first_, second_;
};

}  // namespace jaxsparse
