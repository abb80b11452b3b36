// DepthGather: one warpgroup fills operand tiles whose K is sorted rows: 64 of them a step, by
// cp.async, as blocks of 128 bytes of columns in the 128-byte swizzle. A row that does not count,
// and columns past the matrix, arrive as zeros.
#pragma once

#include "cuda/core/async_copy.cuh"
#include "cuda/tile/load/row_gather.cuh"

namespace jaxsparse {

inline constexpr int kDepthRows = 64;  // of a step
inline constexpr int kDepthThreads = 128;
inline constexpr int kDepthRowStep = kDepthThreads / kRowStepUnits;
inline constexpr int kDepthThreadRows = kDepthRows / kDepthRowStep;  // rows that a thread copies

// Which rows of both operands this thread copies in a step. Asking memory and looking at the answer
// are apart, so that a step in between hides the latency.
class DepthRows {
 public:
  // `lhs` and `gy` are each the other's partner.
  __device__ DepthRows(const SortedRows& lhs, const SortedRows& gy, int thread)
      : lhs_(lhs), gy_(gy), first_row_(thread / kRowStepUnits) {}

  // The sorted rows from `first` to `end`, at most 64.
  __device__ void Ask(int first, int end) {
#pragma unroll
    for (int i = 0; i < kDepthThreadRows; ++i) {
      const int row = first + first_row_ + i * kDepthRowStep;
      asked_lhs_[i] = asked_gy_[i] = row < end ? row : -1;
      if (row >= end) continue;
      if (lhs_.index != nullptr) asked_lhs_[i] = Load(lhs_.index + row);
      if (gy_.index != nullptr) asked_gy_[i] = Load(gy_.index + row);
    }
  }

  // Looks at what was asked; whether one of the rows does not count.
  __device__ bool Take() {
    bool lacks = false;
#pragma unroll
    for (int i = 0; i < kDepthThreadRows; ++i) {
      const int from = asked_lhs_[i], to = asked_gy_[i];
      const bool there = from >= 0 && from < lhs_.rows && to >= 0 && to < gy_.rows;
      lhs[i] = there ? from : -1;
      gy[i] = there ? to : -1;
      lacks |= !there;
    }
    return lacks;
  }

  int lhs[kDepthThreadRows], gy[kDepthThreadRows];  // -1: does not count

 private:
  __device__ static int Load(const int32_t* at) {
    int v;
    asm volatile("ld.global.nc.s32 %0, [%1];" : "=r"(v) : "l"(at));
    return v;
  }

  const SortedRows& lhs_;
  const SortedRows& gy_;
  int first_row_;
  int asked_lhs_[kDepthThreadRows], asked_gy_[kDepthThreadRows];
};

template <int Blocks>
class DepthGather {
 public:
  static constexpr int kBlockBytes = kDepthRows * kRowStepBytes;
  static constexpr int kBytes = Blocks * kBlockBytes;

  __device__ DepthGather(const SortedRows& source, int thread)
      : data_(static_cast<const char*>(source.data)),
        units_(source.units),
        lane_unit_(thread % kRowStepUnits) {
    const int row = thread / kRowStepUnits;
    target_ = row * kRowStepBytes + ((lane_unit_ ^ (row % 8)) * kRowUnitBytes);
  }

  // Starts the copies of this thread's `rows` from unit `first` of 16 bytes on.
  __device__ void Copy(uint32_t shared, const int (&rows)[kDepthThreadRows], int first) const {
#pragma unroll
    for (int i = 0; i < kDepthThreadRows; ++i) {
      const bool exists = rows[i] >= 0;
      const uint64_t row = exists ? static_cast<uint64_t>(rows[i]) * units_ : 0;
#pragma unroll
      for (int b = 0; b < Blocks; ++b) {
        const int unit = first + lane_unit_ + b * kRowStepUnits;
        const bool reads = exists && unit < units_;
        ptx::CopyOrZero16(shared + target_ + b * kBlockBytes + i * kDepthRowStep * kRowStepBytes,
                          data_ + (reads ? row + unit : 0) * kRowUnitBytes,
                          reads ? kRowUnitBytes : 0);
      }
    }
  }

 private:
  const char* data_;
  int units_, lane_unit_;
  uint32_t target_;
};

}  // namespace jaxsparse
