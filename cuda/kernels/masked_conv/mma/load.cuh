// What fills the stages of the mma.sync engine: MmaGather brings the pixels that a tile's rows
// read, MmaWeights the weights of its columns, both by cp.async into rows whose 16-byte units are
// rotated so that copies and ldmatrix are free of bank conflicts. The copies of a step come in
// parts, so that the products of the step before go on between them.
//
// A tap that does not exist, or lies under an unset bit of the input's mask, arrives as zeros and
// is never read (the phantom read).
#pragma once

#include <type_traits>

#include "cuda/core/async_copy.cuh"
#include "cuda/core/dtype.cuh"
#include "cuda/kernels/masked_conv/async.cuh"
#include "cuda/kernels/masked_conv/mma/params.h"

namespace jaxsparse {

inline constexpr int kMmaStepBytes = kStepUnits * kUnitBytes;
inline constexpr int kMmaParts = kStepUnits / 2;  // of a step: 32 bytes of K each

// Where unit `unit` of row `row` of 128 bytes lies: eight neighbouring rows of one unit fall into
// different banks.
__device__ __forceinline__ uint32_t MmaUnitAt(int row, int unit) {
  return row * kMmaStepBytes + ((unit ^ (row % 8)) * kUnitBytes);
}

// Where K stands: the tap and the unit of its pixel that this thread's lane copies next.
class MmaDepth {
 public:
  __device__ explicit MmaDepth(const MmaParams& p) : p_(p) {}

  __device__ void Begin() {
    unit_ = threadIdx.x % kStepUnits;
    tap_ = unit_ / p_.units;
    unit_ -= tap_ * p_.units;
    first_ = 0;
  }

  __device__ __forceinline__ void Advance() {
    if (p_.taps_first) {
      first_ += p_.units;
      if (++tap_ < p_.conv.kernel_h * p_.conv.kernel_w) return;
      tap_ = 0;
      unit_ += kStepUnits;
      first_ += kStepUnits - p_.k_units;
      return;
    }
    first_ += kStepUnits;
    unit_ += kStepUnits;
    while (unit_ >= p_.units) {
      unit_ -= p_.units;
      ++tap_;
    }
  }

  __device__ int tap() const { return tap_; }
  __device__ int unit() const { return unit_; }
  // The step's first unit in the weights' order.
  __device__ int first() const { return first_; }

 private:
  const MmaParams& p_;
  int tap_ = 0, unit_ = 0, first_ = 0;
};

// Rows of A: eight lanes a row, 16 bytes each.
template <class Rows, bool Ragged>
class MmaGather {
 public:
  __device__ MmaGather(const MmaParams& p, const Rows& rows)
      : p_(p), rows_(rows), first_(threadIdx.x / kStepUnits) {
    at_ = MmaUnitAt(first_, threadIdx.x % kStepUnits);
  }

  // Goes to a step of tile `slot`, whose stage is at `shared`; with `none` its copies bring zeros.
  __device__ __forceinline__ void Aim(const MmaDepth& depth, int slot, bool none, uint32_t shared) {
    const int tap = min(depth.tap(), kMaxTaps - 1);
    const bool past = none || depth.tap() >= p_.conv.kernel_h * p_.conv.kernel_w;
    window_ = rows_.tile[slot].window[tap / 32] + first_;
    bit_ = past ? 0 : 1u << (tap % 32);
    offset_ = rows_.offset[tap];
    unit_ = depth.unit();
    target_ = shared + at_;
  }

  __device__ __forceinline__ void Copy(int part) const {
    constexpr int kCopies = Rows::kTileM / kRowStep, kOfPart = kCopies / kMmaParts;
    static_assert(kCopies % kMmaParts == 0, "parts are even");
    const char* x = static_cast<const char*>(p_.conv.x) + unit_ * kUnitBytes;
#pragma unroll
    for (int i = 0; i < kOfPart; ++i) {
      const int row = (part * kOfPart + i) * kRowStep;
      const uint2 window = window_[row];
      const bool exists = window.y & bit_;
      const uint32_t pixel = exists ? window.x + offset_ : 0;
      CopyUnit(target_ + row * kMmaStepBytes, x + pixel * p_.pixel_bytes, exists);
    }
  }

 private:
  static constexpr int kRowStep = kMmaThreads / kStepUnits;
  static_assert(kRowStep % 8 == 0, "a thread's rows must share one turn of the units");

  __device__ __forceinline__ void CopyUnit(uint32_t shared, const char* source, bool exists) const {
    if constexpr (!Ragged) {
      ptx::CopyOrZero16(shared, source, exists ? kUnitBytes : 0);
    } else {
      const int64_t left = exists ? p_.pixel_bytes - unit_ * int64_t{kUnitBytes} : 0;
      if (p_.pixel_bytes % 4 == 0) {
        CopyWords(shared, source, left);
      } else {
        StoreElements(shared, source, left);
      }
    }
  }

  // Pixels of whole words: `left` bytes of this one.
  __device__ __forceinline__ void CopyWords(uint32_t shared, const char* source,
                                            int64_t left) const {
#pragma unroll
    for (int b = 0; b < kUnitBytes; b += 4) {
      const bool there = b < left;
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared + b),
                   "l"(there ? source + b : p_.conv.x), "r"(there ? 4 : 0)
                   : "memory");
    }
  }

  // An odd number of 16-bit channels.
  __device__ __forceinline__ void StoreElements(uint32_t shared, const char* source,
                                                int64_t left) const {
    uint32_t v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto* at = reinterpret_cast<const uint16_t*>(source) + 2 * i;
      const uint32_t low = 4 * i < left ? __ldg(at) : 0;
      const uint32_t high = 4 * i + 2 < left ? __ldg(at + 1) : 0;
      v[i] = low | high << 16;
    }
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(v[0]), "r"(v[1]),
                 "r"(v[2]), "r"(v[3])
                 : "memory");
  }

  const MmaParams& p_;
  const Rows& rows_;
  const uint2* window_ = nullptr;
  int first_, unit_ = 0;
  uint32_t at_, target_ = 0, bit_ = 0, offset_ = 0;
};

// The weights of a step. 16 bits: 64 rows of K, TileN columns; float32: TileN rows of 32 inputs.
template <typename T, int TileN>
class MmaWeights {
 public:
  static constexpr bool kByInputs = DTypeTraits<T>::kBytes == 2;  // whether K is the slow axis
  static constexpr int kBytes = TileN * kMmaStepBytes;
  static constexpr int kRowUnits = kByInputs ? TileN * 2 / kUnitBytes : kStepUnits;

  __device__ explicit MmaWeights(const MmaParams& p)
      : p_(p), row_(threadIdx.x / kRowUnits), unit_(threadIdx.x % kRowUnits) {}

  // Where unit `unit` of a row lies.
  __device__ static __forceinline__ uint32_t At(int row, int unit) {
    return (row * kRowUnits + (unit ^ (row % 8))) * kUnitBytes;
  }

  // Goes to the step whose first unit of K is `first`.
  __device__ __forceinline__ void Aim(int column, int first, bool none, uint32_t shared) {
    target_ = shared + At(row_, unit_);
    int64_t at;
    if constexpr (kByInputs) {
      const int o = column + unit_ * kElements, k = first * kElements + row_;
      left_ = o < p_.columns && !none ? p_.k_units * kElements - k : 0;
      at = (static_cast<int64_t>(k) * p_.columns + o) * 2;
    } else {
      const int row = column + row_, unit = first + unit_;
      left_ = unit < p_.k_units && !none ? p_.conv.out_c - row : 0;
      at = (static_cast<int64_t>(row) * p_.k_units + unit) * kUnitBytes;
    }
    source_ = static_cast<const char*>(p_.weights) + (left_ > 0 ? at : 0);
  }

  __device__ __forceinline__ void Copy(int part) const {
    constexpr int kRows = kByInputs ? kStepUnits * kElements : TileN;
    constexpr int kCopies = kRows / kRowStep, kOfPart = kCopies / kMmaParts;
    static_assert(kCopies % kMmaParts == 0, "parts are even");
    const int64_t pitch = kByInputs ? int64_t{2} * p_.columns : int64_t{kUnitBytes} * p_.k_units;
#pragma unroll
    for (int i = 0; i < kOfPart; ++i) {
      const int row = (part * kOfPart + i) * kRowStep;
      const bool there = row < left_;
      ptx::CopyOrZero16(target_ + row * kRowUnits * kUnitBytes,
                        there ? source_ + row * pitch : source_, there ? kUnitBytes : 0);
    }
  }

 private:
  static constexpr int kElements = kUnitBytes / 2;  // of 16 bits in a unit
  static constexpr int kRowStep = kMmaThreads / kRowUnits;
  static_assert(kRowStep % 8 == 0, "a thread's rows must share one turn of the units");

  const MmaParams& p_;
  int row_, unit_, left_ = 0;
  uint32_t target_ = 0;
  const char* source_ = nullptr;
};

}  // namespace jaxsparse
