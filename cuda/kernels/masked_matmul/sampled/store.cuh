// What a sampled product writes: its tiles, and zeros where there is none.
#pragma once

#include "cuda/core/dtype.cuh"
#include "cuda/kernels/masked_matmul/bits.cuh"
#include "cuda/kernels/masked_matmul/sampled/tiles.cuh"

namespace jaxsparse {

__device__ __forceinline__ void Put(const SampledParams& p, float v, int64_t at, __nv_bfloat16*) {
  p.out_f32
      ? __stcs(static_cast<float*>(p.out) + at, v)
      : __stcs(static_cast<unsigned short*>(p.out) + at, __bfloat16_as_ushort(__float2bfloat16(v)));
}
__device__ __forceinline__ void Put(const SampledParams& p, float v, int64_t at, __half*) {
  p.out_f32 ? __stcs(static_cast<float*>(p.out) + at, v)
            : __stcs(static_cast<unsigned short*>(p.out) + at, __half_as_ushort(__float2half(v)));
}
__device__ __forceinline__ void Put(const SampledParams& p, float v, int64_t at, TF32*) {
  __stcs(static_cast<float*>(p.out) + at, v);
}

// Stores a tile. A lane has the fixed rows lane/4 and lane/4 + 8 of its warp's 16, and of each
// eight picked ones the two from 2 * (lane % 4) on. Boxes are wanted whole.
template <typename T>
__device__ __forceinline__ void StoreBoxes(const SampledParams& p, const SampledTile& tile,
                                           const float (&acc)[kPickedRows / 2]) {
  const int lane = threadIdx.x % 32;
  const int column = tile.panel * kPanelRows + threadIdx.x % 128 / 32 * 16 + lane / 4;
  const int64_t base = int64_t{tile.list} * p.rows * p.columns;
#pragma unroll
  for (int j = 0; j < kPickedRows / 8; ++j) {
    if (j / 4 >= tile.count) break;
    const int first = __ldg(tile.units + j / 4) * kUnitRows + j % 4 * 8 + 2 * (lane % 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first + i % 2, at = column + i / 2 * 8;
      if (row < p.rows && at < p.columns) {
        Put(p, acc[4 * j + i], base + int64_t{row} * p.columns + at, static_cast<T*>(nullptr));
      }
    }
  }
}

// Columns were picked for all 64 rows: a row takes its own.
template <typename T>
__device__ __forceinline__ void StoreRows(const SampledParams& p, const SampledTile& tile,
                                          const float (&acc)[kPickedRows / 2]) {
  const int lane = threadIdx.x % 32;
  const int first = tile.panel * kPanelRows + threadIdx.x % 128 / 32 * 16 + lane / 4;
  const int64_t base = int64_t{tile.list} * p.rows * p.columns;
  const auto size = static_cast<uint32_t>(p.bits.col_size);
  const uint32_t* words[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) words[h] = MaskRow(p.bits, tile.list, min(first + 8 * h, p.rows - 1));
#pragma unroll
  for (int i = 0; i < kPickedRows / 4; ++i) {
    const int unit = i / 2 * 8 + 2 * (lane % 4) + i % 2;
    const bool listed = unit < tile.count;
    const int column = listed ? __ldg(tile.units + unit) : 0;
    const uint32_t block = static_cast<uint32_t>(column) / size;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first + 8 * h;
      const float v = HasBlock(words[h], block) ? acc[i / 2 * 4 + 2 * h + i % 2] : 0.0f;
      if (listed && row < p.rows) {
        Put(p, v, base + int64_t{row} * p.columns + column, static_cast<T*>(nullptr));
      }
    }
  }
}

// Zeros in 64 columns of 32 rows, 16 bytes a lane.
__device__ __forceinline__ void ZeroBox(const SampledParams& p, int64_t list, int panel, int unit,
                                        int bytes) {
  const int lane = threadIdx.x % 32, lanes = kPanelRows * bytes / 16, each = 16 / bytes;
  const int column = panel * kPanelRows + lane % lanes * each;
  if (column >= p.columns) return;
  for (int r = lane / lanes; r < kUnitRows; r += 32 / lanes) {
    const int row = unit * kUnitRows + r;
    if (row >= p.rows) return;
    const int64_t at = (list * p.rows + row) * p.columns + column;
    __stcs(reinterpret_cast<uint4*>(static_cast<char*>(p.out) + at * bytes), uint4{});
  }
}

// The boxes of 32 rows that no panel lists; this is warp `warp` of `warps` that write them.
__device__ __forceinline__ void WriteZeroBoxes(const SampledParams& p, int64_t warp, int64_t warps,
                                               int bytes) {
  const int64_t words = int64_t{p.lists} * p.panels * p.unit_words;
  for (int64_t i = warp; i < words; i += warps) {
    const int64_t line = i / p.unit_words, list = line / p.panels;
    const int word = static_cast<int>(i % p.unit_words), panel = static_cast<int>(line % p.panels);
    const int64_t listed = p.bits.lists == 1 ? panel : line;
    uint32_t zeros = ~__ldg(p.united + listed * p.unit_words + word);
    for (; zeros != 0; zeros &= zeros - 1) {
      ZeroBox(p, list, panel, 32 * word + __ffs(zeros) - 1, bytes);
    }
  }
}

// Zeros in 64 rows, one column a lane.
template <typename U>
__device__ __forceinline__ void ZeroColumns(const SampledParams& p, int64_t list, int panel,
                                            int column, bool zero) {
  if (!zero || column >= p.columns) return;
  U* out = static_cast<U*>(p.out) + list * p.rows * p.columns + column;
  const int first = panel * kPanelRows, rows = min(kPanelRows, p.rows - first);
#pragma unroll 8
  for (int r = 0; r < rows; ++r) __stcs(out + int64_t{first + r} * p.columns, U{});
}

// The columns that no panel lists.
__device__ __forceinline__ void WriteZeroColumns(const SampledParams& p, int64_t warp,
                                                 int64_t warps, int bytes) {
  const int64_t words = int64_t{p.lists} * p.panels * p.unit_words;
  for (int64_t i = warp; i < words; i += warps) {
    const int64_t line = i / p.unit_words, list = line / p.panels;
    const int word = static_cast<int>(i % p.unit_words), panel = static_cast<int>(line % p.panels);
    const int64_t listed = p.bits.lists == 1 ? panel : line;
    const int lane = threadIdx.x % 32;
    const bool zero = ((~__ldg(p.united + listed * p.unit_words + word) >> lane) & 1) != 0;
    if (bytes == 4) {
      ZeroColumns<float>(p, list, panel, 32 * word + lane, zero);
    } else {
      ZeroColumns<unsigned short>(p, list, panel, 32 * word + lane, zero);
    }
  }
}

}  // namespace jaxsparse
