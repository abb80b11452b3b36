// Which output pixels a kernel computes, and which input pixel each tap of one reads: the listed
// tiles as a flat range of pixel slots, decoded by multiplication instead of division. Offsets into
// tensors are 64-bit, coordinates 32-bit.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/core/divisor.h"
#include "cuda/kernels/masked_conv/args.h"

namespace jaxsparse::simt {

struct Pixel {
  int b, y, x;
};

// First row of a pixel that reads nothing: no tap brings it into the image.
inline constexpr int kNoRow = INT32_MIN / 2;

// Slot s is pixel s % tile_pixels of listed tile s / tile_pixels. A slot is active when its tile is
// listed and in range, the pixel lies in the image and its mask bit is set: everything else is the
// phantom that is never written.
struct ActivePixels {
  const int32_t* ids;
  const int32_t* count;
  const uint32_t* words;
  int capacity, tile_pixels, tile_h, tile_w, tile_total;
  int batch, height, width, words_per_row;
  bool grid_aligned;
  Divisor tile_pixel_div, tile_w_div, cols_div, rows_div;

  static ActivePixels Of(const TileList& tiles, const ConvGeometry& g) {
    const int64_t rows = (g.out_h + tiles.tile_h - 1) / tiles.tile_h;
    const int64_t cols = (g.out_w + tiles.tile_w - 1) / tiles.tile_w;
    ActivePixels p;
    p.ids = tiles.ids;
    p.count = tiles.count;
    p.words = tiles.words;
    p.capacity = static_cast<int>(tiles.capacity);
    p.tile_pixels = tiles.tile_h * tiles.tile_w;
    p.tile_h = tiles.tile_h;
    p.tile_w = tiles.tile_w;
    p.tile_total = static_cast<int>(std::min<int64_t>(g.batch * rows * cols, INT32_MAX));
    p.batch = static_cast<int>(g.batch);
    p.height = static_cast<int>(g.out_h);
    p.width = static_cast<int>(g.out_w);
    p.words_per_row = static_cast<int>((g.out_w + 31) / 32);
    p.grid_aligned = tiles.grid_aligned;
    p.tile_pixel_div = MakeDivisor(p.tile_pixels);
    p.tile_w_div = MakeDivisor(tiles.tile_w);
    p.cols_div = MakeDivisor(cols);
    p.rows_div = MakeDivisor(rows);
    return p;
  }

  __device__ __forceinline__ int Slots() const {
    return min(max(*count, 0), capacity) * tile_pixels;
  }

  // The pixel of `slot` in the grid-aligned tile `id`, before its mask bit is tested; false outside
  // the image.
  __device__ __forceinline__ bool LocateInGrid(int slot, int id, Pixel* p) const {
    if (id < 0 || id >= tile_total) return false;
    int inside, dx, col, row;
    tile_pixel_div.Quotient(slot, &inside);
    const int dy = tile_w_div.Quotient(inside, &dx);
    p->b = rows_div.Quotient(cols_div.Quotient(id, &col), &row);
    p->y = row * tile_h + dy;
    p->x = col * tile_w + dx;
    return p->y < height && p->x < width;
  }

  // As LocateInGrid, in the tile with the origin ids[3*tile .. 3*tile + 2] of `slot`.
  __device__ __forceinline__ bool LocateAtOrigin(int slot, Pixel* p) const {
    int inside, dx;
    const int32_t* origin = ids + int64_t{3} * tile_pixel_div.Quotient(slot, &inside);
    const int dy = tile_w_div.Quotient(inside, &dx);
    *p = {origin[0], origin[1], origin[2]};
    if (p->b < 0 || p->b >= batch || p->y < 0 || p->y >= height || p->x < 0 || p->x >= width) {
      return false;
    }
    p->y += dy;
    p->x += dx;
    return p->y < height && p->x < width;
  }

  // Id of the tile of `slot`; grid-aligned lists only.
  __device__ __forceinline__ int GridId(int slot) const {
    int inside;
    return ids[tile_pixel_div.Quotient(slot, &inside)];
  }

  __device__ __forceinline__ uint32_t Word(const Pixel& p) const {
    return words[(int64_t{p.b} * height + p.y) * words_per_row + (p.x >> 5)];
  }

  // Whether the bit of `p` is set in the word that holds it.
  __device__ __forceinline__ static bool Set(uint32_t word, const Pixel& p) {
    return word >> (p.x & 31) & 1u;
  }

  __device__ __forceinline__ bool Active(int slot, int slots, Pixel* p) const {
    if (slot >= slots) return false;
    const bool located =
        grid_aligned ? LocateInGrid(slot, GridId(slot), p) : LocateAtOrigin(slot, p);
    return located && Set(Word(*p), *p);
  }

  __device__ __forceinline__ int64_t Flat(const Pixel& p) const {
    return (int64_t{p.b} * height + p.y) * width + p.x;
  }
};

// From an output pixel and a tap to the input pixel it reads. A tap outside the image, between the
// pixels of a dilated input or under an unset bit of x_words reads nothing (-1): the phantom read.
struct TapReader {
  int in_h, in_w, kernel_h, kernel_w;
  int stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
  int words_per_row;
  bool lhs_dilated, plain;  // plain: neither a dilated input nor x_words
  Divisor lhs_h_div, lhs_w_div;
  const uint32_t* x_words;

  static TapReader Of(const ConvGeometry& g, const uint32_t* x_words) {
    TapReader t;
    t.in_h = static_cast<int>(g.in_h);
    t.in_w = static_cast<int>(g.in_w);
    t.kernel_h = g.kernel_h;
    t.kernel_w = g.kernel_w;
    t.stride_h = g.stride_h;
    t.stride_w = g.stride_w;
    t.pad_top = g.pad_top;
    t.pad_left = g.pad_left;
    t.dilation_h = g.dilation_h;
    t.dilation_w = g.dilation_w;
    t.words_per_row = static_cast<int>((g.in_w + 31) / 32);
    t.lhs_dilated = g.lhs_dilation_h != 1 || g.lhs_dilation_w != 1;
    t.plain = !t.lhs_dilated && x_words == nullptr;
    t.lhs_h_div = MakeDivisor(g.lhs_dilation_h);
    t.lhs_w_div = MakeDivisor(g.lhs_dilation_w);
    t.x_words = x_words;
    return t;
  }

  // Row and column that tap (0, 0) of an output pixel reads, in the dilated input's coordinates.
  __device__ __forceinline__ int FirstRow(int y) const { return y * stride_h - pad_top; }
  __device__ __forceinline__ int FirstCol(int x) const { return x * stride_w - pad_left; }

  __device__ __forceinline__ bool Inside(int row, int col) const {
    return static_cast<uint32_t>(row) < static_cast<uint32_t>(in_h) &&
           static_cast<uint32_t>(col) < static_cast<uint32_t>(in_w);
  }

  // Index of the input pixel b, (row, col) of the dilated input, or -1.
  __device__ __forceinline__ int64_t Source(int b, int row, int col) const {
    if (lhs_dilated) {
      if (row < 0 || col < 0) return -1;
      int row_rest, col_rest;
      row = lhs_h_div.Quotient(row, &row_rest);
      col = lhs_w_div.Quotient(col, &col_rest);
      if (row_rest | col_rest) return -1;
    }
    if (!Inside(row, col)) return -1;
    const int64_t line = int64_t{b} * in_h + row;
    if (x_words && !(x_words[line * words_per_row + (col >> 5)] >> (col & 31) & 1u)) return -1;
    return line * in_w + col;
  }
};

}  // namespace jaxsparse::simt
