// MaskBits: which elements of a warp's sums count, in the rows and columns that the warp's lanes
// hold.
#pragma once

#include <cstdint>

#include "cuda/kernels/sparse_attention/mma/walk.cuh"

namespace jaxsparse {

// Blocks * 16 rows by N columns.
template <int N, int Blocks, bool Transposed>
class MaskBits {
 public:
  static constexpr int kUnits = N / kMaskUnit;

  // For rows from `row` on.
  template <class Walk>
  __device__ __forceinline__ void Begin(const Walk& walk, int row) {
    row_ = row;
#pragma unroll
    for (int i = 0; i < Blocks; ++i) list_[i] = walk.List(row + i * kMaskUnit);
  }

  // Those of tile `index` of the walk. The whole warp.
  template <class Walk>
  __device__ __forceinline__ void Find(const Walk& walk, int index) {
    int listed = 0, full = 0;
    mixed_ = false;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const MaskUnit unit = walk.Unit(index * kUnits + u);
      mixed_ |= walk.Mixed(index * kUnits + u);
      start_[u] = unit.start;
      const int left = walk.length() - unit.start;
      const uint32_t inside = left >= kMaskUnit ? 0xFFFFu : left <= 0 ? 0 : (1u << left) - 1;
#pragma unroll
      for (int i = 0; i < Blocks; ++i) {
        const int slot = walk.Slot(unit, list_[i]);
        listed += slot != kUnlisted;
        full += slot == kFullBlock && left >= kMaskUnit;
        uint32_t both = slot == kFullBlock ? 0xFFFFFFFFu : 0;
        if (slot >= 0) both = Read(walk.mask(), slot, row_ + i * kMaskUnit, unit.start);
        bits_[i][u] = both & (inside * 0x10001u);
      }
    }
    idle_ = listed == 0;
    full_ = full == kUnits * Blocks;
  }

  // Of all rows of the warp: whether none has a listed block, and whether every element counts.
  __device__ bool idle() const { return idle_; }
  __device__ bool full() const { return full_; }
  // Of all rows of the CTA's tile: whether some block counts in part, or for some rows only.
  __device__ bool mixed() const { return mixed_; }
  // The position of column 16 * `unit`.
  __device__ int start(int unit) const { return start_[unit]; }
  // The position of group `j` of 8 columns, in this lane.
  __device__ __forceinline__ int Column(int j) const {
    return start_[j / 2] + j % 2 * 8 + threadIdx.x % 4 * 2;
  }

  // Of sum [i][j][e].
  __device__ __forceinline__ bool Counts(int i, int j, int e) const {
    const uint32_t bits = bits_[i][j / 2] >> (threadIdx.x % 4 * 2);
    return bits >> (e / 2 * kMaskUnit + j % 2 * 8 + e % 2) & 1;
  }
  // Of all columns of row lane / 4 (bits 0 to 15) and of the eighth after it, in unit `unit`.
  __device__ __forceinline__ uint32_t OfUnit(int i, int unit) const {
    uint32_t bits = 0;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) bits = u == unit ? bits_[i][u] : bits;
    return bits;
  }

 private:
  // The words of a slot: rows are queries in either direction.
  __device__ __forceinline__ static uint32_t Word(const AttentionMask& mask, int slot, int q,
                                                  int kv) {
    const int words = (mask.block_kv + 31) / 32, bit = kv % mask.block_kv;
    const int64_t at = (static_cast<int64_t>(slot) * mask.block_q + q % mask.block_q) * words;
    return __ldg(mask.words + at + bit / 32) >> (bit % 32);
  }

  __device__ __forceinline__ static uint32_t Read(const AttentionMask& mask, int slot, int row,
                                                  int column) {
    const int lane = threadIdx.x % 32;
    if constexpr (!Transposed) {
      const uint32_t above = Word(mask, slot, row + lane / 4, column);
      return (above & 0xFFFFu) | Word(mask, slot, row + lane / 4 + 8, column) << 16;
    } else {  // a lane reads a query's bits; the lanes exchange rows for columns
      const uint32_t word = Word(mask, slot, column + lane % kMaskUnit, row);
      uint32_t bits = 0;
#pragma unroll
      for (int r = 0; r < 8; ++r) {
        const uint32_t above = __ballot_sync(0xFFFFFFFFu, word >> r & 1);
        const uint32_t below = __ballot_sync(0xFFFFFFFFu, word >> (r + 8) & 1);
        if (r == lane / 4) bits = (above & 0xFFFFu) | below << 16;
      }
      return bits;
    }
  }

  uint32_t bits_[Blocks][kUnits];
  int start_[kUnits];
  int list_[Blocks], row_;
  bool idle_ = true, full_ = false, mixed_ = false;
};

}  // namespace jaxsparse
