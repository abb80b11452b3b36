// Which output pixels are computed, and which input pixels their taps read.
#pragma once

#include <cstdint>

#include "cpu/core/scratch.h"
#include "cpu/kernels/masked_conv/args.h"

namespace jaxsparse {

struct Pixel {
  int64_t batch, y, x;
};

// The active pixels of the listed tiles, as bits. Tiles listed twice or overlapping count once, and
// the order of a list does not matter: pixels come in raster order, which also keeps neighbours'
// taps in cache.
class ActivePixels {
 public:
  ActivePixels(const ConvGeometry& geometry, ScratchCarver& scratch);

  void Build(const ConvTiles& tiles);

  int64_t count() const { return row_first_[rows_]; }
  int64_t rows() const { return rows_; }
  const uint32_t* row_bits(int64_t row) const { return bits_ + row * row_words_; }

  // Writes the pixels [first, first + count) to `pixels`.
  void List(int64_t first, int64_t count, Pixel* pixels) const;

 private:
  void MarkGrid(const ConvTiles& tiles, int64_t listed);
  void MarkTile(const ConvTiles& tiles, int64_t batch, int64_t y0, int64_t x0);

  int64_t batch_, out_h_, out_w_, row_words_, rows_;
  uint32_t* bits_;      // [rows, row_words]
  int64_t* row_first_;  // [rows + 1]: active pixels before each row
};

// The input row (column) that a tap of an output row (column) reads, or -1 for a phantom read.
class TapTable {
 public:
  TapTable(const ConvGeometry& geometry, ScratchCarver& scratch);

  void Build(const ConvGeometry& geometry);

  const int32_t* rows(int64_t y) const { return rows_ + y * kernel_h_; }
  const int32_t* cols(int64_t x) const { return cols_ + x * kernel_w_; }
  // Every tap exists, at a constant step.
  bool inside(const Pixel& pixel) const { return row_inside_[pixel.y] & col_inside_[pixel.x]; }

 private:
  int64_t kernel_h_, kernel_w_;
  int32_t* rows_;
  int32_t* cols_;
  uint8_t* row_inside_;
  uint8_t* col_inside_;
};

}  // namespace jaxsparse
