// How the runs executor brings a few rows of x into shared memory. All blocks read the same few
// lines of the second-level cache (8 KB a row at 4096 inputs), which takes 1,500 to 1,900 cycles on
// an H200, beside the weights; blocks of a cluster that share the loads, and store for each other,
// were slower (4.6 us a product instead of 3.8 with two, 7.9 with four).
#pragma once

#include <cstdint>

#include "cuda/kernels/pruned_matmul/gather.cuh"

namespace jaxsparse::runs {

// The part's inputs on their way to shared memory: those of 8 neighbours in 16-byte units whose
// order changes with the neighbours, so that 8 lanes store to different banks. What a thread loads
// first is under way from the beginning.
template <typename T, int kRows>
class InputsFill {
 public:
  using P = gather::Plane<kRows>;
  static constexpr int kFirst = kRows <= 2 ? 2 : 1;  // items under way at once

  __device__ InputsFill(const PrunedArgs& args, uint32_t x, int64_t first, int inputs,
                        uint32_t plane_bytes)
      : args_(args), x_(x), first_(first), eights_(inputs / 8), plane_bytes_(plane_bytes) {
#pragma unroll
    for (int i = 0; i < kFirst; ++i) Load(threadIdx.x + i * blockDim.x, loaded_[i]);
  }

  __device__ __forceinline__ void Store() {
#pragma unroll
    for (int i = 0; i < kFirst; ++i) StoreItem(threadIdx.x + i * blockDim.x, loaded_[i]);
#pragma unroll 1
    for (int i = threadIdx.x + kFirst * blockDim.x; i < P::kCount * eights_; i += blockDim.x) {
      Load(i, loaded_[0]);
      StoreItem(i, loaded_[0]);
    }
  }

 private:
  // Eight neighbouring inputs of each row of a plane.
  struct Item {
    uint4 rows[P::kWidth];
  };

  __device__ __forceinline__ void Load(int i, Item& item) {
    const int plane = P::kCount == 1 ? 0 : i / eights_, eight = i - plane * eights_;
#pragma unroll
    for (int r = 0; r < P::kWidth; ++r) {
      const int64_t row = plane * P::kWidth + r, input = first_ + eight * 8;
      item.rows[r] = {0, 0, 0, 0};
      if (i < P::kCount * eights_ && row < args_.m && input < args_.k) {
        item.rows[r] = LoadNow(static_cast<const T*>(args_.x) + row * args_.k + input);
      }
    }
  }

  static __device__ __forceinline__ uint4 LoadNow(const T* source) {
    uint4 v;
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(source));
    return v;
  }

  __device__ __forceinline__ void StoreItem(int i, const Item& item) const {
    constexpr int kUnits = P::kBytes / 2 < 2 ? 2 : P::kBytes / 2, kPairs = P::kWidth / 2;
    if (i >= P::kCount * eights_) return;
    const int plane = P::kCount == 1 ? 0 : i / eights_, eight = i - plane * eights_;
    uint32_t rows[P::kWidth][4];
#pragma unroll
    for (int r = 0; r < P::kWidth; ++r) {
      rows[r][0] = item.rows[r].x, rows[r][1] = item.rows[r].y;
      rows[r][2] = item.rows[r].z, rows[r][3] = item.rows[r].w;
    }
    const uint32_t to = x_ + plane * plane_bytes_ + eight * kUnits * 16;
    const int turn = eight / (8 / kUnits) % kUnits;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      uint32_t words[4];
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        if constexpr (kRows == 1) {
          const uint32_t pair = rows[0][u * 2 + q / 2];
          words[q] = __float_as_uint(q % 2 ? gather::HighHalf<T>(pair) : gather::LowHalf<T>(pair));
        } else {
          const int input = (u * 4 + q) / kPairs, pair = (u * 4 + q) % kPairs;
          words[q] = __byte_perm(rows[2 * pair][input / 2], rows[2 * pair + 1][input / 2],
                                 input % 2 ? 0x7632 : 0x5410);
        }
      }
      gather::Store128(to + (u ^ turn) * 16, words);
    }
  }

  const PrunedArgs& args_;
  uint32_t x_;
  int64_t first_;
  int eights_;
  uint32_t plane_bytes_;
  Item loaded_[kFirst];
};

}  // namespace jaxsparse::runs
