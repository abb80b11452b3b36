// MmaProduct: a warp's share of a tile of the mma.sync engine, multiplied step by step and stored
// to the pixels that its rows came from.
#pragma once

#include "cuda/core/mma_sync.cuh"
#include "cuda/kernels/masked_conv/mma/load.cuh"
#include "cuda/tile/store/scatter.cuh"

namespace jaxsparse {

// Results whose channels are not multiples of a vector: one by one.
template <typename T>
__device__ void StoreSingle(const ConvParams& p, int pixel, int column, float sum) {
  if (pixel < 0 || column >= p.out_c) return;
  const int64_t at = static_cast<int64_t>(pixel) * p.out_c + column;
  if (p.bias != nullptr) sum += __ldg(p.bias + column);
  if constexpr (DTypeTraits<T>::kBytes == 2) {
    if (!p.out_f32) {
      const auto* residual = static_cast<const uint16_t*>(p.residual);
      if (residual != nullptr) sum += DTypeTraits<T>::Unpack(__ldg(residual + at)).x;
      const uint32_t rounded = DTypeTraits<T>::Pack(Activate(p, sum), 0.0f);
      static_cast<uint16_t*>(p.out)[at] = static_cast<uint16_t>(rounded);
      return;
    }
  }
  if (p.residual != nullptr) sum += __ldg(static_cast<const float*>(p.residual) + at);
  static_cast<float*>(p.out)[at] = Activate(p, sum);
}

// Four warps, two by two.
template <typename T, int TileM, int TileN>
class MmaProduct {
 public:
  static constexpr int kRows = TileM / 2, kColumns = TileN / 2;  // of a warp
  static constexpr int kBlocks = kRows / 16, kPairs = kColumns / 16;

  __device__ MmaProduct() {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    row_ = warp % 2 * kRows;
    column_ = warp / 2 * kColumns;
    // Blocks of an operand's LoadMatrices: 8 rows by a unit of K. A: rows, then units; the weights
    // of float32: units, then rows; of 16 bits, where K is the slow axis: rows of K, then units of
    // columns. A unit's place differs from that of the first part, or of the first columns, in the
    // bits of its number only.
    a_ = MmaUnitAt(row_ + lane % 16, lane / 16);
    b_ = Weights::kByInputs ? Weights::At(lane % 16, column_ / 8 + lane / 16)
                            : Weights::At(column_ + lane / 16 * 8 + lane % 8, lane / 8 % 2);
  }

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
      for (float& v : sums_[i]) v = 0.0f;
    }
  }

  // Part `k` of a step, 32 bytes of K.
  __device__ __forceinline__ void Multiply(uint32_t a, uint32_t b, int k) {
    uint32_t right[kPairs][4], left[kBlocks][4];
#pragma unroll
    for (int j = 0; j < kPairs; ++j) LoadWeights(b, k, j, right[j]);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      ptx::LoadMatrices(((a + a_) ^ (k * 2 * kUnitBytes)) + i * 16 * kMmaStepBytes, left[i]);
    }
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        ptx::MmaSync<T>(sums_[i] + 8 * j, left[i], right[j][0], right[j][1]);
        ptx::MmaSync<T>(sums_[i] + 8 * j + 4, left[i], right[j][2], right[j][3]);
      }
    }
  }

  // `column`: the tile's first; `pixels`: of its rows.
  template <Stores kStores>
  __device__ __forceinline__ void Store(const MmaParams& p, int column, const int32_t* pixels) {
    const int lane_row = row_ + threadIdx.x % 32 / 4;
    if (p.ragged_out) {
      const int first = column + column_ + 2 * (threadIdx.x % 4);
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) StoreRagged(p, first, pixels + lane_row + 16 * i, i);
      return;
    }
    const ScatterStore<T, kColumns, QuadTrade, kStores> store(p.conv, column + column_);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      const int row = lane_row + 16 * i;
      store.Store(sums_[i], {pixels[row], pixels[row + 8]});
    }
  }

 private:
  using Weights = MmaWeights<T, TileN>;

  __device__ __forceinline__ void LoadWeights(uint32_t b, int k, int j, uint32_t (&out)[4]) const {
    if constexpr (Weights::kByInputs) {
      constexpr int kRow = Weights::kRowUnits * kUnitBytes;
      ptx::LoadMatricesTransposed(((b + b_) ^ (j * 2 * kUnitBytes)) + k * 16 * kRow, out);
    } else {
      ptx::LoadMatrices(((b + b_) ^ (k * 2 * kUnitBytes)) + j * 16 * kMmaStepBytes, out);
    }
  }

  __device__ __forceinline__ void StoreRagged(const MmaParams& p, int first, const int32_t* pixel,
                                              int i) const {
#pragma unroll
    for (int v = 0; v < kColumns / 2; ++v) {  // sum v: column pair v / 4, row v / 2 % 2
      StoreSingle<T>(p.conv, pixel[v / 2 % 2 * 8], first + v / 4 * 8 + v % 2, sums_[i][v]);
    }
  }

  int row_, column_;
  uint32_t a_, b_;
  float sums_[kBlocks][kColumns / 2];
};

}  // namespace jaxsparse
