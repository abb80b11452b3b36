// Which tiles of a packed mask are active, found by words: the rows of a tile are OR-ed, tile
// columns are tested by folding the word (widths that divide 32) or by range masks over it. No
// pixel is looked at alone. Bit-packed masks and bitwise tile tests: Liu et al., DynaSpa:
// Exploiting Spatial Sparsity for Efficient Dynamic DNN Inference on Devices, 2024, section 3.4.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace jaxsparse {

// A packed mask uint32[images, height, words] cut into tiles; `rows` x `cols` tiles an image.
struct TileGrid {
  int64_t images;
  int32_t height, width, words, tile_h, tile_w, rows, cols;
  int32_t
      span_log2;  // log2 of the most tiles, rounded up to a power of two, that begin in one word

  TileGrid(int64_t images, int32_t height, int32_t width, int32_t tile_h, int32_t tile_w)
      : images(images),
        height(height),
        width(width),
        words(width / 32 + (width % 32 != 0)),
        tile_h(tile_h),
        tile_w(tile_w),
        rows(height / tile_h + (height % tile_h != 0)),
        cols(width / tile_w + (width % tile_w != 0)),
        span_log2(0) {
    while ((1 << span_log2) * static_cast<int64_t>(tile_w) < 32) ++span_log2;
  }

  __host__ __device__ int64_t items() const { return images * rows * words; }
  __host__ __device__ int64_t list_words() const { return images * height * words; }
};

// The active tiles of one item: bit k is tile `first_id + k`.
struct TileWord {
  uint32_t bits;
  int32_t first_id;
};

// Item (image, tile row, word column) owns the tiles whose first pixel column lies in its word, so
// items in order hold the tiles in order, and a word is read by one item (by few, when tiles
// straddle words).
class TileBits {
 public:
  __device__ TileBits(const uint32_t* words, const TileGrid& grid) : words_(words), grid_(grid) {}

  __device__ TileWord Load(int32_t item) const {
    const int32_t row = item / grid_.words, w = item - row * grid_.words;
    const int32_t image = row / grid_.rows, i = row - image * grid_.rows;
    const int32_t y0 = i * grid_.tile_h, y1 = min(y0 + grid_.tile_h, grid_.height);
    const uint32_t* rows = words_ + (static_cast<int64_t>(image) * grid_.height + y0) * grid_.words;
    const int32_t j0 = FirstColumn(w), id = row * grid_.cols + j0;
    if (32 % grid_.tile_w == 0) return {Fold(OrRows(rows, y1 - y0, w)), id};
    return {Straddle(rows, y1 - y0, w, j0, min(grid_.cols, FirstColumn(w + 1))), id};
  }

  // The id of bit 0 of an item.
  __device__ int32_t FirstId(int32_t item) const {
    const int32_t row = item / grid_.words;
    return row * grid_.cols + FirstColumn(item - row * grid_.words);
  }

 private:
  // The first tile column that begins in word column `w` or later.
  __device__ int32_t FirstColumn(int32_t w) const {
    return (32 * w + grid_.tile_w - 1) / grid_.tile_w;
  }

  // Which pixel columns of word column `w` are active in `count` rows.
  __device__ uint32_t OrRows(const uint32_t* rows, int32_t count, int32_t w) const {
    uint32_t bits = 0;
#pragma unroll 4
    for (int32_t y = 0; y < count; ++y) bits |= rows[static_cast<int64_t>(y) * grid_.words + w];
    const int32_t valid = grid_.width - 32 * w;
    return valid >= 32 ? bits : bits & ((1u << valid) - 1u);
  }

  // tile_w in {1, 2, 4, 8, 16, 32}: halves the word until a bit is a tile.
  __device__ uint32_t Fold(uint32_t bits) const {
    for (int32_t t = grid_.tile_w; t > 1; t >>= 1) {
      bits = (bits | bits >> 1) & 0x55555555u;
      bits = (bits | bits >> 1) & 0x33333333u;
      bits = (bits | bits >> 2) & 0x0f0f0f0fu;
      bits = (bits | bits >> 4) & 0x00ff00ffu;
      bits = (bits | bits >> 8) & 0x0000ffffu;
    }
    return bits;
  }

  // Any other width: tiles [j0, j1) begin in word `w` and may end in a later one.
  __device__ uint32_t Straddle(const uint32_t* rows, int32_t count, int32_t w, int32_t j0,
                               int32_t j1) const {
    uint32_t tiles = 0, columns = j0 < j1 ? OrRows(rows, count, w) : 0u;
    for (int32_t j = j0; j < j1; ++j) {
      const int32_t begin = j * grid_.tile_w, end = min(begin + grid_.tile_w, grid_.width);
      bool active = false;
      for (int32_t x = begin; x < end && !active; x = 32 * (x / 32 + 1)) {
        if (x / 32 != w) columns = OrRows(rows, count, w = x / 32);
        const int32_t length = min(end, 32 * (w + 1)) - x;
        active = (columns >> (x % 32)) & (~0u >> (32 - length));
      }
      tiles |= static_cast<uint32_t>(active) << (j - j0);
    }
    return tiles;
  }

  const uint32_t* words_;
  const TileGrid& grid_;
};

}  // namespace jaxsparse
