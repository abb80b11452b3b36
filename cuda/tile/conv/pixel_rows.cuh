// Rows of the implicit matrix product: GEMM row r is pixel r % (th*tw) of listed tile r / (th*tw).
// Tiles of any size condense into dense rows, so that a compute tile is full whatever the mask
// looks like.
//
// Mechanism after SparDA 3.3 (sparse-dense transformation: micro tiles gathered into a dense tile).
#pragma once

#include "cuda/tile/conv/params.h"

namespace jaxsparse {

struct OutputPixel {
  int b, y, x;
  bool active;
};

// `Plain`: of the grid's single pixels. The shape of the list is then constants of the kernel.
template <bool Plain>
class PixelRows {
 public:
  // The count is asked for here, and awaited where it is first read. `list` stays where it is: not
  // a parameter that is found by an index, which is slow to read.
  __device__ PixelRows(const ConvParams& p, const RowList& list)
      : p_(p),
        list_(list),
        ids_(list.ids),
        capacity_(list.capacity),
        count_(list.count == nullptr ? list.capacity : *list.count) {}

  __device__ const RowList& list() const { return list_; }

  __device__ int tiles() const { return min(max(count_, 0), capacity_); }
  __device__ int rows() const { return Plain ? tiles() : tiles() * list_.tile_area.value; }

  // A row is found in three steps, so that no thread waits for a load that was just begun: what
  // the list says, where that is and its word of the mask, and the pixel. Only the last one needs
  // the count: what the list holds behind it is read and not used.
  struct Listed {
    int id[3];  // the tile, or (b, y0, x0)
  };
  struct Placed {
    OutputPixel pixel;
    uint32_t word;
  };

  __device__ Listed List(int row) const {
    if constexpr (Plain) return {{Id(row)}};
    const int slot = list_.tile_area.Quotient(row);
    return slot < capacity_ ? Tile(slot) : Listed{{-1}};
  }

  __device__ Placed Place(int row, const Listed& listed) const {
    if constexpr (Plain) {
      const OutputPixel found = InGrid(listed.id[0], p_.by_out_h, p_.by_out_w);
      return {found, found.active ? *MaskWord(found) : 0};
    }
    const int inside = row - list_.tile_area.Quotient(row) * list_.tile_area.value;
    const int dy = list_.tile_width.Quotient(inside);
    OutputPixel pixel = Origin(listed);
    pixel.y += dy;
    pixel.x += inside - dy * list_.tile_w;
    pixel.active = pixel.active && pixel.y < p_.out_h && pixel.x < p_.out_w;
    return {pixel, pixel.active ? *MaskWord(pixel) : 0};
  }

  // Inactive past the list, outside the image, where its mask bit is unset or its id makes no
  // sense.
  __device__ OutputPixel Find(int row, const Placed& placed) const {
    OutputPixel pixel = placed.pixel;
    pixel.active = pixel.active && row < rows() && ((placed.word >> (pixel.x % 32)) & 1);
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

  // What a list of tiles of the grid has at `slot`; -1 past its room.
  __device__ int Id(int slot) const {
    int id = slot;
    if (ids_ != nullptr && slot < capacity_) id = ids_[slot];
    return slot < capacity_ ? id : -1;
  }

  // Tile `id` of a grid of so many lines and columns an image: x and y count tiles. Inactive where
  // the id makes no sense.
  __device__ OutputPixel InGrid(int id, const Divisor& lines, const Divisor& columns) const {
    const int line = columns.Quotient(id);
    const int b = lines.Quotient(line);
    return {b, line - b * lines.value, id - line * columns.value, id >= 0 && b < p_.batch};
  }

  // The first pixel of the listed tile `slot`; inactive past the list's room, or where its id makes
  // no sense.
  __device__ OutputPixel TileOrigin(int slot) const {
    return slot < capacity_ ? Origin(Tile(slot)) : OutputPixel{0, 0, 0, false};
  }

 private:
  __device__ Listed Tile(int slot) const {
    if (ids_ == nullptr) return {{slot}};
    if (list_.grid_aligned) return {{ids_[slot]}};
    const int32_t* id = ids_ + 3 * static_cast<int64_t>(slot);
    return {{id[0], id[1], id[2]}};
  }

  __device__ OutputPixel Origin(const Listed& listed) const {
    if (!list_.grid_aligned) {
      const OutputPixel origin = {listed.id[0], listed.id[1], listed.id[2], true};
      const bool inside = origin.b >= 0 && origin.b < p_.batch && origin.y >= 0 &&
                          origin.y < p_.out_h && origin.x >= 0 && origin.x < p_.out_w;
      return inside ? origin : OutputPixel{0, 0, 0, false};
    }
    OutputPixel origin = InGrid(listed.id[0], list_.grid_rows, list_.grid_columns);
    origin.y *= list_.tile_h;
    origin.x *= list_.tile_w;
    return origin;
  }

  __device__ const uint32_t* MaskWord(const OutputPixel& pixel) const {
    const int64_t line = static_cast<int64_t>(pixel.b) * p_.out_h + pixel.y;
    return p_.words + line * ((p_.out_w + 31) / 32) + pixel.x / 32;
  }

  const ConvParams& p_;
  const RowList& list_;
  const int32_t* const ids_;
  const int capacity_, count_;
};

}  // namespace jaxsparse
