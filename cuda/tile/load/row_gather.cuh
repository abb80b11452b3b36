// RowGather: one warpgroup fills K-major A tiles with rows of a matrix, named by an index or
// consecutive. Eight lanes copy 128 bytes of a row by cp.async, 16 bytes each, into the 128-byte
// swizzle; a row that does not count, and K past its end, arrive as zeros.
#pragma once

#include "cuda/core/async_copy.cuh"

namespace jaxsparse {

inline constexpr int kRowUnitBytes = 16;  // one cp.async
inline constexpr int kRowStepUnits = 8;   // units of one row in one K step: 128 bytes
inline constexpr int kRowStepBytes = 128;

// Rows of a matrix in sorted order. Sorted row i reads row index[i] (nullptr: i) and counts when
// that row and row partner[i] of the other matrix (nullptr: always) exist.
struct SortedRows {
  const void* data;
  const int32_t* index;
  const int32_t* partner;
  int rows, partner_rows;
  int units;  // of 16 bytes in a row

  // The row that sorted row `i` reads, or -1.
  __device__ int Find(int i) const {
    const int row = index == nullptr ? i : __ldg(index + i);
    const int other = partner == nullptr ? 0 : __ldg(partner + i);
    return Check(row, other);
  }

  // `row` where it and row `other` of the other matrix exist, else -1.
  __device__ int Check(int row, int other) const {
    const bool there = partner == nullptr || (other >= 0 && other < partner_rows);
    return there && row >= 0 && row < rows ? row : -1;
  }
};

template <int TileM>
class RowGather {
 public:
  static constexpr int kThreads = 128;

  __device__ RowGather(const SortedRows& source, int thread)
      : source_(source),
        data_(static_cast<const char*>(source.data)),
        lane_unit_(thread % kRowStepUnits),
        first_row_(thread / kRowStepUnits) {
    target_ = first_row_ * kRowStepBytes + ((lane_unit_ ^ (first_row_ % 8)) * kRowUnitBytes);
  }

  // Looks up the `rows` sorted rows from `first` on.
  __device__ void Begin(int first, int rows) {
    exists_ = 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int r = first_row_ + i * kRowStep;
      const int row = r < rows ? source_.Find(first + r) : -1;
      at_[i] = row < 0 ? 0 : static_cast<uint32_t>(row) * static_cast<uint32_t>(source_.units);
      exists_ |= static_cast<uint32_t>(row >= 0) << i;
    }
  }

  // Starts the copies of K step `step` into the A tile at `shared`.
  __device__ void Copy(uint32_t shared, int step) const {
    const int unit = step * kRowStepUnits + lane_unit_;
    const uint32_t there = unit < source_.units ? exists_ : 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const uint32_t exists = (there >> i) & 1;
      const uint64_t at = exists ? uint64_t{at_[i] + unit} : 0;
      ptx::CopyOrZero16(shared + target_ + i * kRowStep * kRowStepBytes, data_ + at * kRowUnitBytes,
                        exists * kRowUnitBytes);
    }
  }

 private:
  static constexpr int kRowStep = kThreads / kRowStepUnits;
  static constexpr int kRows = TileM / kRowStep;
  static_assert(TileM % kRowStep == 0, "tile_m must be a multiple of 16");

  const SortedRows& source_;
  const char* data_;
  int lane_unit_, first_row_;
  uint32_t target_, exists_ = 0;
  uint32_t at_[kRows];
};

}  // namespace jaxsparse
