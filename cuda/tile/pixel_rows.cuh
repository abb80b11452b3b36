// Rows of the implicit matrix product: GEMM row r is pixel r % (th*tw) of listed tile r / (th*tw).
// Tiles of any size condense into dense rows, so that a compute tile is full whatever the mask
// looks like.
//
// Mechanism after SparDA 3.3 (sparse-dense transformation: micro tiles gathered into a dense tile).
#pragma once

#include "cuda/tile/conv_params.h"

namespace jaxsparse {

struct OutputPixel {
  int b, y, x;
  bool active;
};

class PixelRows {
 public:
  __device__ explicit PixelRows(const ConvParams& p)
      : p_(p), area_(p.tile_h * p.tile_w), rows_(min(max(*p.count, 0), p.capacity) * area_) {}

  __device__ int rows() const { return rows_; }

  // The pixel of `row`; inactive past the list, outside the image, where its mask bit is unset or
  // its id makes no sense.
  __device__ OutputPixel Find(int row) const {
    if (row >= rows_) return {0, 0, 0, false};
    const int slot = row / area_;
    const int inside = row - slot * area_;
    const int dy = inside / p_.tile_w;
    OutputPixel pixel = TileOrigin(slot);
    pixel.y += dy;
    pixel.x += inside - dy * p_.tile_w;
    pixel.active = pixel.active && pixel.y < p_.out_h && pixel.x < p_.out_w && MaskBit(pixel);
    return pixel;
  }

  __device__ int Flat(const OutputPixel& pixel) const {
    return (pixel.b * p_.out_h + pixel.y) * p_.out_w + pixel.x;
  }

 private:
  __device__ OutputPixel TileOrigin(int slot) const {
    if (!p_.grid_aligned) {
      const int32_t* id = p_.ids + 3 * static_cast<int64_t>(slot);
      const OutputPixel origin = {id[0], id[1], id[2], true};
      const bool inside = origin.b >= 0 && origin.b < p_.batch && origin.y >= 0 &&
                          origin.y < p_.out_h && origin.x >= 0 && origin.x < p_.out_w;
      return inside ? origin : OutputPixel{0, 0, 0, false};
    }
    const int id = p_.ids[slot];
    const int columns = (p_.out_w + p_.tile_w - 1) / p_.tile_w;
    const int rows = (p_.out_h + p_.tile_h - 1) / p_.tile_h;
    const int line = id / columns;
    const int b = line / rows;
    if (id < 0 || b >= p_.batch) return {0, 0, 0, false};
    return {b, (line - b * rows) * p_.tile_h, (id - line * columns) * p_.tile_w, true};
  }

  __device__ bool MaskBit(const OutputPixel& pixel) const {
    const int64_t line = static_cast<int64_t>(pixel.b) * p_.out_h + pixel.y;
    const uint32_t word = p_.words[line * ((p_.out_w + 31) / 32) + pixel.x / 32];
    return (word >> (pixel.x % 32)) & 1;
  }

  const ConvParams& p_;
  int area_, rows_;
};

}  // namespace jaxsparse
