// Operands of the attention kernels in shared memory: tiles of rows, cut into panels of 128 bytes a
// row, whose 16-byte units are rotated so that copies and ldmatrix are free of bank conflicts.
#pragma once

#include <cstdint>

#include "cuda/core/async_copy.cuh"
#include "cuda/core/dtype.cuh"
#include "cuda/core/matrix_copy.cuh"
#include "cuda/core/mbarrier.cuh"
#include "cuda/kernels/sparse_attention/mma/walk.cuh"

namespace jaxsparse {

// float32 operands whose products are float32.
struct Float32 {};

template <class T>
struct AttentionElement {  // 16 bits
  using Storage = T;
  static constexpr int kBytes = 2;
};
template <>
struct AttentionElement<TF32> {
  using Storage = float;
  static constexpr int kBytes = 4;
};
template <>
struct AttentionElement<Float32> : AttentionElement<TF32> {};

inline constexpr int kPanelBytes = 128, kUnitBytes = 16;
inline constexpr int kPanelUnits = kPanelBytes / kUnitBytes;

__host__ __device__ constexpr int PanelsOf(int row_bytes) {
  return (row_bytes + kPanelBytes - 1) / kPanelBytes;
}

// Where unit `unit` of row `row` of a panel lies.
__device__ __forceinline__ uint32_t PanelAt(int row, int unit) {
  return row * kPanelBytes + ((unit ^ (row % 8)) * kUnitBytes);
}

// Rows of an array: `base` is the first one's, `pitch` bytes lie between two.
struct AttentionRows {
  const char* base;
  int64_t pitch;
  int length, row_bytes;

  __device__ int panels() const { return PanelsOf(row_bytes); }
};

// Brings rows `start` to `start` + 15 to rows 16 * `unit` and on of a tile of `TileRows` rows; what
// lies outside of the array arrives as zeros.
template <int Threads, int TileRows>
__device__ __forceinline__ void CopyUnit(uint32_t tile, int unit, const AttentionRows& rows,
                                         int start) {
  const int byte = threadIdx.x % kPanelUnits * kUnitBytes;
#pragma unroll
  for (int r = threadIdx.x / kPanelUnits; r < kMaskUnit; r += Threads / kPanelUnits) {
    const bool exists = start + r < rows.length;
    const char* source = rows.base + (exists ? (start + r) * rows.pitch : 0);
    uint32_t target = tile + PanelAt(unit * kMaskUnit + r, threadIdx.x % kPanelUnits);
    for (int at = byte; at < rows.panels() * kPanelBytes; at += kPanelBytes) {
      const bool inside = exists && at < rows.row_bytes;
      ptx::CopyOrZero16(target, inside ? source + at : rows.base, inside ? kUnitBytes : 0);
      target += TileRows * kPanelBytes;
    }
  }
}

// A tile of consecutive rows.
template <int Threads, int TileRows>
__device__ __forceinline__ void CopyTile(uint32_t tile, const AttentionRows& rows, int first) {
#pragma unroll 1
  for (int unit = 0; unit < TileRows / kMaskUnit; ++unit) {
    CopyUnit<Threads, TileRows>(tile, unit, rows, first + unit * kMaskUnit);
  }
}

// The rows of tile `index` of a walk.
template <int Threads, int TileRows, class Walk>
__device__ __forceinline__ void CopyListed(uint32_t tile, const AttentionRows& rows,
                                           const Walk& walk, int index) {
  constexpr int kUnits = TileRows / kMaskUnit;
#pragma unroll 1
  for (int unit = 0; unit < kUnits; ++unit) {
    CopyUnit<Threads, TileRows>(tile, unit, rows, walk.Unit(index * kUnits + unit).start);
  }
}

}  // namespace jaxsparse
