// The seam between the matrix products' drivers and the units compiled for one instruction set: a
// table of register tiles over a strip of gathered rows. A driver gathers, converts and condenses;
// a tile here multiplies.
#pragma once

#include <cstdint>

#include "cpu/core/dtype.h"

namespace jaxsparse {

// A strip of R rows is stored in blocks of 64 columns: row r of column d lies at (d/64)*R*64 + r*64
// + d%64. One address register serves all rows, and a row is copied in contiguously.
constexpr int64_t kStripBlock = 64;
constexpr int kMaxProductRows = 12;
constexpr int kMaxProductVectors = 4;
constexpr int64_t kMaxPanelFloats = 64;  // widest tile, in floats

// sums[r][o] = sum over d < depth of strip(r, d) * panel[d*step + o], and, with a list,
// sums[r][o] = sum over j < depth of strip[strip_at[j] + r*64] * panel[panel_at[j]*step + o].
struct ProductTile {
  const float* strip;
  const float* panel;
  int64_t depth, step;
  const int32_t* strip_at;  // offset of row 0 of entry j in the strip
  const int32_t* panel_at;  // panel row of entry j
  float* sums;              // [rows][vectors * lanes of the instruction set]
  bool adds = false;        // to the sums that are there
};

// Rows and vectors of a register tile.
struct ProductShape {
  int rows, vectors;
};

// to[d * step + o] = from[o * stride + d] as float32, for d < depth and o < step; 0 from o =
// `count` on. `step` is a multiple of the lanes.
struct TransposedPanel {
  DType type;
  const void* from;
  int64_t stride, count, depth;
  float* to;
  int64_t step;
};

using ProductTileFn = void (*)(const ProductTile&);

// Indexed [vectors][rows]; nullptr where the shape is not built. A partial vector of outputs is
// padded by the panel.
struct MatmulIsa {
  ProductTileFn product[kMaxProductVectors + 1][kMaxProductRows + 1];
  ProductTileFn listed[kMaxProductVectors + 1][kMaxProductRows + 1];
  void (*transpose)(const TransposedPanel&);
};

const MatmulIsa& MatmulPlain();
#if defined(__x86_64__)
const MatmulIsa& MatmulAvx2();
const MatmulIsa& MatmulAvx512();
#elif defined(__aarch64__)
const MatmulIsa& MatmulNeon();
#endif

// The best table that this machine can run.
const MatmulIsa& MatmulTiles();

// The smallest tile height that is built for `vectors` and holds `rows`.
inline int TileHeight(const MatmulIsa& isa, int vectors, int64_t rows) {
  while (isa.product[vectors][rows] == nullptr) ++rows;
  return static_cast<int>(rows);
}

}  // namespace jaxsparse
