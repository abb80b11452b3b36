#include "cpu/kernels/masked_conv/pixels.h"

#include <algorithm>
#include <cstring>

namespace jaxsparse {
namespace {

// Bits [first, last) of a word, 0 <= first < last <= 32.
uint32_t BitRange(int64_t first, int64_t last) {
  const uint32_t upto = last == 32 ? ~0u : (1u << last) - 1;
  return upto & (~0u << first);
}

// One axis of the tap table.
void BuildAxis(int64_t outputs, int64_t taps, int64_t stride, int64_t pad, int64_t dilation,
               int64_t lhs_dilation, int64_t inputs, int32_t* table, uint8_t* inside) {
  for (int64_t o = 0; o < outputs; ++o) {
    bool all = lhs_dilation == 1;
    for (int64_t k = 0; k < taps; ++k) {
      const int64_t n = o * stride + k * dilation - pad;
      const bool exists = n >= 0 && n % lhs_dilation == 0 && n / lhs_dilation < inputs;
      table[o * taps + k] = exists ? static_cast<int32_t>(n / lhs_dilation) : -1;
      all &= exists;
    }
    inside[o] = all;
  }
}

}  // namespace

ActivePixels::ActivePixels(const ConvGeometry& geometry, ScratchCarver& scratch)
    : batch_(geometry.batch),
      out_h_(geometry.out_h),
      out_w_(geometry.out_w),
      row_words_(geometry.out_row_words()),
      rows_(geometry.out_rows()),
      bits_(scratch.Take<uint32_t>(Checked(rows_) * row_words_)),
      row_first_(scratch.Take<int64_t>(rows_ + 1)) {}

void ActivePixels::MarkTile(const ConvTiles& tiles, int64_t batch, int64_t y0, int64_t x0) {
  const int64_t x1 = std::min(x0 + tiles.tile_w, out_w_);
  const int64_t y1 = std::min(y0 + tiles.tile_h, out_h_);
  for (int64_t word = x0 / 32; word * 32 < x1; ++word) {
    const uint32_t columns =
        BitRange(std::max<int64_t>(x0 - word * 32, 0), std::min<int64_t>(x1 - word * 32, 32));
    for (int64_t y = y0; y < y1; ++y) {
      const int64_t at = (batch * out_h_ + y) * row_words_ + word;
      bits_[at] |= tiles.words[at] & columns;
    }
  }
}

// Ids mostly ascend: the row of the last one is kept, since a division takes longer than marking a
// pixel.
void ActivePixels::MarkGrid(const ConvTiles& tiles, int64_t listed) {
  const int64_t tile_rows = (out_h_ + tiles.tile_h - 1) / tiles.tile_h;
  const int64_t tile_cols = (out_w_ + tiles.tile_w - 1) / tiles.tile_w;
  const int64_t every = batch_ * tile_rows * tile_cols;
  const bool pixels = tiles.tile_h == 1 && tiles.tile_w == 1;
  int64_t row = 0, first = 0, last = 0;  // tile row of all images, its ids
  for (int64_t i = 0, found = 0; i < tiles.capacity && found < listed; ++i) {
    const int64_t id = tiles.ids[i];
    if (id < 0) continue;  // the end of a shard's list: those of other shards follow
    ++found;
    if (id >= every) continue;
    if (id < first || id >= last) {
      row = id / tile_cols;
      first = row * tile_cols;
      last = first + tile_cols;
    }
    const int64_t column = id - first;
    if (pixels) {
      const int64_t at = row * row_words_ + column / 32;
      bits_[at] |= tiles.words[at] & (1u << (column % 32));
    } else {
      MarkTile(tiles, row / tile_rows, row % tile_rows * tiles.tile_h, column * tiles.tile_w);
    }
  }
}

void ActivePixels::Build(const ConvTiles& tiles) {
  std::memset(bits_, 0, static_cast<size_t>(rows_ * row_words_) * sizeof(uint32_t));
  const int64_t listed = std::clamp<int64_t>(tiles.count, 0, tiles.capacity);
  if (tiles.every) {
    ConvTiles whole = tiles;
    whole.tile_h = out_h_;
    whole.tile_w = out_w_;
    for (int64_t b = 0; b < batch_; ++b) MarkTile(whole, b, 0, 0);
  } else if (tiles.grid_aligned) {
    MarkGrid(tiles, listed);
  } else {
    for (int64_t i = 0, found = 0; i < tiles.capacity && found < listed; ++i) {
      const int64_t batch = tiles.ids[3 * i], y = tiles.ids[3 * i + 1], x = tiles.ids[3 * i + 2];
      if (batch < 0) continue;
      ++found;
      const bool exists = batch < batch_ && y >= 0 && y < out_h_ && x >= 0 && x < out_w_;
      if (exists) MarkTile(tiles, batch, y, x);
    }
  }
  int64_t before = 0;
  for (int64_t row = 0; row < rows_; ++row) {
    row_first_[row] = before;
    for (int64_t w = 0; w < row_words_; ++w) before += __builtin_popcount(row_bits(row)[w]);
  }
  row_first_[rows_] = before;
}

void ActivePixels::List(int64_t first, int64_t count, Pixel* pixels) const {
  if (count <= 0) return;
  int64_t row = std::upper_bound(row_first_, row_first_ + rows_ + 1, first) - row_first_ - 1;
  int64_t skip = first - row_first_[row];
  for (int64_t written = 0; written < count; ++row) {
    Pixel pixel = {row / out_h_, row % out_h_, 0};
    for (int64_t w = 0; w < row_words_ && written < count; ++w) {
      uint32_t bits = row_bits(row)[w];
      const int64_t set = __builtin_popcount(bits);
      if (skip >= set) {
        skip -= set;
        continue;
      }
      for (; skip > 0; --skip) bits &= bits - 1;
      for (; bits != 0 && written < count; bits &= bits - 1) {
        pixel.x = w * 32 + __builtin_ctz(bits);
        pixels[written++] = pixel;
      }
    }
  }
}

TapTable::TapTable(const ConvGeometry& geometry, ScratchCarver& scratch)
    : kernel_h_(geometry.kernel_h),
      kernel_w_(geometry.kernel_w),
      rows_(scratch.Take<int32_t>(geometry.out_h * geometry.kernel_h)),
      cols_(scratch.Take<int32_t>(geometry.out_w * geometry.kernel_w)),
      row_inside_(scratch.Take<uint8_t>(geometry.out_h)),
      col_inside_(scratch.Take<uint8_t>(geometry.out_w)) {}

void TapTable::Build(const ConvGeometry& g) {
  BuildAxis(g.out_h, g.kernel_h, g.stride_h, g.pad_top, g.dilation_h, g.lhs_dilation_h, g.in_h,
            rows_, row_inside_);
  BuildAxis(g.out_w, g.kernel_w, g.stride_w, g.pad_left, g.dilation_w, g.lhs_dilation_w, g.in_w,
            cols_, col_inside_);
}

}  // namespace jaxsparse
