// One row of tiles of one stage: from the bytes that its windows touch to its words and its tiles.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/bits/pack_bytes.cuh"
#include "cuda/index/affected_index.h"

namespace jaxsparse {

constexpr int kAffectedThreads = 512;
constexpr int kAffectedWarps = kAffectedThreads / 32;

// What the kernel gets: the stages, and how the items of a mask are numbered.
struct AffectedPlan {
  AffectedArgs args;
  int32_t first_item[kMaxAffected + 1];  // of each stage; then the number of all
  int32_t tile_rows[kMaxAffected];       // of an image
  int64_t items;                         // of all masks
  uint32_t tile_starts[kMaxAffected];    // bit p is set when a tile begins at pixel p of a word
  int64_t packed_words, merged_words;    // shared memory of a block
};

__host__ __device__ inline int32_t Words(int64_t width) {
  return static_cast<int32_t>((width + 31) / 32);
}

// Rows of the mask that a tile row of a stage touches, at most.
__host__ __device__ inline int32_t TouchedRows(const AffectedStage& stage) {
  return ((1 << stage.th_log2) - 1) * stage.rows.stride + stage.rows.taps;
}

// One row of tiles of one stage of one mask.
struct AffectedItem {
  int32_t list;
  int32_t index;           // among those of its stage and mask
  int32_t count;           // how many these are
  int32_t image, y, rows;  // its first row in its image, and how many there are
  uint32_t tile_starts;
  const AffectedStage* stage;

  __device__ AffectedItem(const AffectedPlan& plan, int32_t item) {
    const int32_t all = plan.first_item[plan.args.stages];
    list = plan.args.lists == 1 ? 0 : item / all;
    const int32_t at = item - list * all;
    int t = 0;
    while (at >= plan.first_item[t + 1]) ++t;
    stage = &plan.args.stage[t];
    tile_starts = plan.tile_starts[t];
    index = at - plan.first_item[t];
    count = plan.first_item[t + 1] - plan.first_item[t];
    const int32_t tile_rows = max(plan.tile_rows[t], 1);
    image = index / tile_rows;
    y = (index - image * tile_rows) << stage->th_log2;
    rows = image < plan.args.images ? max(min(1 << stage->th_log2, stage->height - y), 0) : 0;
  }

  __device__ int32_t row_words() const { return Words(stage->width); }
  // Its first word in the stage's words.
  __device__ int64_t first_word(int64_t images) const {
    return ((int64_t{list} * images + image) * stage->height + y) * row_words();
  }
};

// The shared memory of a block: rows of the mask as words, then their OR along columns, a row for
// each of the item's.
struct AffectedRows {
  uint32_t* packed;
  uint32_t* merged;
  int32_t words;  // of a row
};

// Calls `visit(row, word)` for all of `rows` x `words`: a power of two of lanes a row, so that
// nothing is divided; `kBatch` rows of a thread at a time, for loads in flight together.
template <int kBatch, class Visit>
__device__ inline void ForRows(int32_t rows, int32_t words, const Visit& visit) {
  const int log2 = words > 16 ? 5 : words > 8 ? 4 : 3;
  const int32_t step = kAffectedThreads >> log2;
#pragma unroll 1
  for (int32_t w = threadIdx.x & ((1 << log2) - 1); w < words; w += 1 << log2) {
#pragma unroll kBatch
    for (int32_t r = threadIdx.x >> log2; r < rows; r += step) visit(r, w);
  }
}

// The rows of the mask that the item touches, as words.
__device__ inline void PackRows(const AffectedArgs& args, const AffectedItem& item,
                                const AffectedRows& to, int32_t first, int32_t count) {
  const int64_t rows = args.lists * args.images * args.height;
  const MaskBytes bytes(args.mask, rows * args.width, args.width);
  const int64_t row0 = (item.list * args.images + item.image) * args.height + first;
  if ((args.width | reinterpret_cast<uintptr_t>(args.mask)) % 32 == 0) {
    const uint4* from = reinterpret_cast<const uint4*>(args.mask + row0 * args.width);
    ForRows<4>(count, to.words, [&](int32_t r, int32_t w) {
      const int32_t i = r * to.words + w;
      to.packed[i] = PackWord(__ldg(from + 2 * i), __ldg(from + 2 * i + 1));
    });
  } else {
    ForRows<1>(count, to.words, [&](int32_t r, int32_t w) {
      to.packed[r * to.words + w] = bytes.Load(row0 + r, w);
    });
  }
}

// ORs along columns: row r of the item is active where a row of its window is. `first` is the first
// row that was packed, of `count`.
__device__ inline void MergeRows(const AffectedItem& item, const AffectedRows& at, int32_t first,
                                 int32_t count) {
  const AffectedAxis& axis = item.stage->rows;
  ForRows<1>(item.rows, at.words, [&](int32_t r, int32_t w) {
    const int32_t low = (item.y + r) * axis.stride - axis.pad - first;
    const int32_t stop = min(low + axis.taps, count);
    uint32_t bits = 0;
#pragma unroll 8
    for (int32_t k = max(low, 0); k < stop; ++k) bits |= at.packed[k * at.words + w];
    at.merged[r * at.words + w] = bits;
  });
}

// 32 * kWide bits of a row of words, which widen to the left and are then thinned out.
struct Span {
  static constexpr int kWide = 4;
  uint32_t word[kWide];

  // From bit `first` on; those outside of the row are zero.
  __device__ Span(const uint32_t* row, int32_t words, int32_t first) {
    uint32_t from[kWide + 1];
#pragma unroll
    for (int j = 0; j <= kWide; ++j) {
      const int32_t w = (first >> 5) + j;
      from[j] = w >= 0 && w < words ? row[w] : 0u;
    }
#pragma unroll
    for (int j = 0; j < kWide; ++j) {
      word[j] = __funnelshift_r(from[j], from[j + 1], static_cast<uint32_t>(first));
    }
  }

  // Bit n becomes the OR of those from n to n + taps - 1.
  __device__ void Widen(int32_t taps) {
#pragma unroll 1
    for (int32_t wide = 1; wide < taps;) {
      const int32_t by = min(wide, taps - wide);
      uint32_t from[kWide + 2] = {};
#pragma unroll
      for (int j = 0; j < kWide; ++j) from[j] = word[j];
#pragma unroll
      for (int j = 0; j < kWide; ++j) {
        const uint32_t low = by < 32 ? from[j] : from[j + 1];
        const uint32_t high = by < 32 ? from[j + 1] : from[j + 2];
        word[j] |= __funnelshift_r(low, high, by);
      }
      wide += by;
    }
  }

  // Every second bit of a word, in the low half.
  __device__ static uint32_t Thin(uint32_t bits) {
    bits &= 0x55555555u;
    bits = (bits | bits >> 1) & 0x33333333u;
    bits = (bits | bits >> 2) & 0x0f0f0f0fu;
    bits = (bits | bits >> 4) & 0x00ff00ffu;
    return (bits | bits >> 8) & 0xffffu;
  }
};

// Whether a word of the stage reads no more of a row than a span holds.
__host__ __device__ inline bool FitsSpan(const AffectedAxis& axis) {
  return axis.stride <= 2 && 31 * axis.stride + axis.taps <= 32 * Span::kWide;
}

// A word of a row of the stage, from the words of what its window has in each column.
__device__ inline uint32_t SpreadWord(const AffectedAxis& axis, const uint32_t* row, int32_t words,
                                      int32_t w) {
  const int32_t first = 32 * w * axis.stride - axis.pad;
  if (FitsSpan(axis)) {
    Span span(row, words, first);
    span.Widen(axis.taps);
    return axis.stride == 1 ? span.word[0]
                            : Span::Thin(span.word[0]) | Span::Thin(span.word[1]) << 16;
  }
  uint32_t bits = 0;
#pragma unroll 1
  for (int32_t n = 0; n < 32; ++n) {  // pixel by pixel, a span at a time
    const int32_t low = first + n * axis.stride;
    uint32_t seen = 0;
#pragma unroll 1
    for (int32_t k = 0; k < axis.taps; k += 32) {
      const Span span(row, words, low + k);
      const int32_t left = axis.taps - k;
      seen |= left >= 32 ? span.word[0] : span.word[0] & ((1u << left) - 1u);
    }
    bits |= (seen != 0 ? 1u : 0u) << n;
  }
  return bits;
}

// ORs along rows, and keeps the words: in `words`, and over the packed rows.
__device__ inline void SpreadRows(const AffectedItem& item, const AffectedRows& at,
                                  uint32_t* words) {
  const int32_t row_words = item.row_words();
  ForRows<1>(item.rows, row_words, [&](int32_t r, int32_t w) {
    uint32_t bits = SpreadWord(item.stage->columns, at.merged + r * at.words, at.words, w);
    const int32_t valid = item.stage->width - 32 * w;
    if (valid < 32) bits &= (1u << valid) - 1u;
    at.packed[r * row_words + w] = words[r * row_words + w] = bits;
  });
}

// The tiles of word column `w`: bit p is the tile that begins at its pixel p. `words` are the rows
// of the item.
__device__ inline uint32_t TestTiles(const AffectedItem& item, const uint32_t* words, int32_t w) {
  const int32_t row_words = item.row_words();
  uint32_t bits = 0;
#pragma unroll 8
  for (int32_t r = 0; r < item.rows; ++r) bits |= words[r * row_words + w];
#pragma unroll
  for (int s = 0; s < 5; ++s) {
    if (s < item.stage->tw_log2) bits |= bits >> (1 << s);
  }
  return bits & item.tile_starts;
}

}  // namespace jaxsparse
