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
  __device__ PixelRows(const ConvParams& p, const RowList& list)
      : p_(p), list_(list), area_(list.tile_h * list.tile_w), rows_(Tiles(list) * area_) {}

  __device__ int rows() const { return rows_; }

  // A row is found in three steps, so that nobody need wait for a load that was just begun: what
  // the list says, where that is and its word of the mask, and the pixel.
  struct Listed {
    int id[3];  // the tile, or (b, y0, x0)
  };
  struct Placed {
    OutputPixel pixel;
    uint32_t word;
  };

  __device__ Listed List(int row) const { return row < rows_ ? Tile(row / area_) : Listed{{-1}}; }

  __device__ Placed Place(int row, const Listed& listed) const {
    const int inside = row % area_, dy = inside / list_.tile_w;
    OutputPixel pixel = Origin(listed);
    pixel.y += dy;
    pixel.x += inside - dy * list_.tile_w;
    pixel.active = pixel.active && pixel.y < p_.out_h && pixel.x < p_.out_w;
    return {pixel, pixel.active ? *MaskWord(pixel) : 0};
  }

  // Inactive past the list, outside the image, where its mask bit is unset or its id makes no
  // sense.
  __device__ OutputPixel Find(const Placed& placed) const {
    OutputPixel pixel = placed.pixel;
    pixel.active = pixel.active && ((placed.word >> (pixel.x % 32)) & 1);
    return pixel;
  }

  // The mask's bits from `pixel`, which is in the image, to the right: at least 8, if there are so
  // many.
  __device__ uint32_t MaskBits(const OutputPixel& pixel) const {
    const uint32_t* word = MaskWord(pixel);
    const int shift = pixel.x % 32;
    const bool next = shift > 24 && pixel.x / 32 + 1 < (p_.out_w + 31) / 32;
    return __funnelshift_r(word[0], next ? word[1] : 0, shift);
  }

  __device__ int Flat(const OutputPixel& pixel) const {
    return (pixel.b * p_.out_h + pixel.y) * p_.out_w + pixel.x;
  }

  // The first pixel of the listed tile `slot`; inactive where its id makes no sense.
  __device__ OutputPixel TileOrigin(int slot) const { return Origin(Tile(slot)); }

 private:
  __device__ static int Tiles(const RowList& list) {
    return list.count == nullptr ? list.capacity : min(max(*list.count, 0), list.capacity);
  }

  __device__ Listed Tile(int slot) const {
    if (list_.ids == nullptr) return {{slot}};
    if (list_.grid_aligned) return {{list_.ids[slot]}};
    const int32_t* id = list_.ids + 3 * static_cast<int64_t>(slot);
    return {{id[0], id[1], id[2]}};
  }

  __device__ OutputPixel Origin(const Listed& listed) const {
    if (!list_.grid_aligned) {
      const OutputPixel origin = {listed.id[0], listed.id[1], listed.id[2], true};
      const bool inside = origin.b >= 0 && origin.b < p_.batch && origin.y >= 0 &&
                          origin.y < p_.out_h && origin.x >= 0 && origin.x < p_.out_w;
      return inside ? origin : OutputPixel{0, 0, 0, false};
    }
    const int id = listed.id[0];
    const int columns = (p_.out_w + list_.tile_w - 1) / list_.tile_w;
    const int rows = (p_.out_h + list_.tile_h - 1) / list_.tile_h;
    const int line = id / columns;
    const int b = line / rows;
    if (id < 0 || b >= p_.batch) return {0, 0, 0, false};
    return {b, (line - b * rows) * list_.tile_h, (id - line * columns) * list_.tile_w, true};
  }

  __device__ const uint32_t* MaskWord(const OutputPixel& pixel) const {
    const int64_t line = static_cast<int64_t>(pixel.b) * p_.out_h + pixel.y;
    return p_.words + line * ((p_.out_w + 31) / 32) + pixel.x / 32;
  }

  const ConvParams& p_;
  const RowList list_;  // held: a parameter that is found by an index is slow to read
  int area_, rows_;
};

}  // namespace jaxsparse
