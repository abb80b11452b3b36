// Frozen weights on the CPU: what a handler hands over, and where the windows of a tile lie.
//
// A tile is `rows` output rows. Its input is rewritten, channel by channel, into strips: for each
// output column, the input column that a tap reads, over all input rows that the tile reads, so the
// window of tap (ky, kx) for all output rows is one contiguous run, and an entry of the weights is
// a number and the start of its window. A strip for every kx: all windows of kx start where its
// strip's rows do, on a cache line where the pitch is a multiple of one. Shared strips: taps whose
// columns are equal modulo the stride read one strip, shifted; a third of the panel at 3 x 3, loads
// that cross cache lines. Rows are split by their remainder modulo the stride, so a window is
// contiguous at any stride. Bands: the result is cut into bands of equally many rows that lie side
// by side, so that rows of any width fill whole vectors, and every window is aligned. Method:
// SparDR (Wang, Jiang, Zhang, Cao, Han), III-B and III-C.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "contracts/checked.h"
#include "contracts/enums.gen.h"
#include "cpu/core/dtype.h"
#include "cpu/core/geometry.h"

namespace jaxsparse {

struct PrunedTile {
  int64_t vectors, pitch, rows;
  bool shared;    // strips are shared by the taps that a shift maps onto one another
  int64_t bands;  // row i of the bands is one row of a tile; 1 where strips are shared
};

// Calls visit(phase, reach) for each remainder modulo `stride` that some tap k * dilation has, in
// the order of its first tap: `reach` is how far, in steps of the stride, its last tap lies. Taps
// `period` apart have the same remainder.
template <typename Visit>
void EachPhase(int64_t taps, int64_t dilation, int64_t stride, Visit visit) {
  const int64_t period = stride / std::gcd(dilation, stride);
  for (int64_t k = 0; k < std::min(taps, period); ++k) {
    const int64_t last = k + (taps - 1 - k) / period * period;
    visit(k * dilation % stride, last * dilation / stride);
  }
}

// Columns of a shared strip past those of the tile.
inline int64_t StripReach(const ConvGeometry& g) {
  int64_t most = 0;
  EachPhase(g.kernel_w, g.dilation_w, g.stride_w,
            [&](int64_t, int64_t reach) { most = reach > most ? reach : most; });
  return most;
}

struct PrunedArgs {
  ConvGeometry geometry;  // groups is 1
  bool channels_first;
  DType in_type, out_type;
  Activation activation;
  PrunedTile tile;
  int64_t block;  // channels of a panel
  int64_t parts;
  int64_t entries;
  const void* x;
  const float* values;      // [entries]
  const uint16_t* windows;  // [entries]
  const int32_t* starts;    // [blocks + 1, out_c]: a row of a block ends where the next begins
  const int32_t* rows;      // [out_c], then [parts + 1]: where each part of them begins
  const float* bias;        // nullptr: none
  void* out;
  void* scratch;
  int64_t scratch_bytes;

  int64_t blocks() const { return geometry.in_c > block ? (geometry.in_c + block - 1) / block : 1; }
  // The bands side by side: rows and columns.
  int64_t height() const { return (geometry.out_h + tile.bands - 1) / tile.bands; }
  int64_t width() const { return geometry.out_w * tile.bands; }
  int64_t row_tiles() const { return (height() + tile.rows - 1) / tile.rows; }
  // Columns of a tile.
  int64_t columns() const { return tile.pitch - (tile.shared ? StripReach(geometry) : 0); }
  int64_t column_tiles() const { return (width() + columns() - 1) / columns(); }
};

// Calls visit(band, x, at, count) for the runs of one band in `columns` columns from `first` on:
// from column x of the band on, the columns `at` and so on of the tile.
template <typename Visit>
void EachBand(int64_t out_w, int64_t first, int64_t columns, Visit visit) {
  for (int64_t at = 0; at < columns;) {
    const int64_t band = (first + at) / out_w, x = (first + at) % out_w;
    const int64_t count = out_w - x < columns - at ? out_w - x : columns - at;
    visit(band, x, at, count);
    at += count;
  }
}

// Calls visit(j, offset) for the rows of a strip: row j is input row `offset` of the tile. For each
// remainder modulo the stride, the rows that the tile needs, one after the other.
template <typename Visit>
void EachStripRow(const ConvGeometry& g, int64_t tile_rows, Visit visit) {
  int64_t j = 0;
  EachPhase(g.kernel_h, g.dilation_h, g.stride_h, [&](int64_t phase, int64_t reach) {
    for (int64_t r = 0; r < tile_rows + reach; ++r) visit(j++, r * g.stride_h + phase);
  });
}

// Calls visit(q, offset) for the strips of a channel: strip q begins at input column `offset`.
template <typename Visit>
void EachStrip(const ConvGeometry& g, bool shared, Visit visit) {
  int64_t q = 0;
  if (shared) {
    EachPhase(g.kernel_w, g.dilation_w, g.stride_w,
              [&](int64_t phase, int64_t) { visit(q++, phase); });
  } else {
    for (; q < g.kernel_w; ++q) visit(q, q * g.dilation_w);
  }
}

inline int64_t StripCount(const ConvGeometry& g, bool shared) {
  if (!shared) return g.kernel_w;
  return std::min(g.kernel_w, g.stride_w / std::gcd(g.dilation_w, g.stride_w));
}

inline Checked StripRows(const ConvGeometry& g, int64_t tile_rows) {
  Checked count = 0;
  EachPhase(g.kernel_h, g.dilation_h, g.stride_h,
            [&](int64_t, int64_t reach) { count = count + tile_rows + reach; });
  return count;
}

}  // namespace jaxsparse
