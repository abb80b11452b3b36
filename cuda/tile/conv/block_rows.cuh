// Blocks of 8 x 8 output pixels: row r of the product is pixel r % 64 of block r / 64, line by
// line. A listed tile is cut into blocks; its sides are multiples of 8.
#pragma once

#include "cuda/tile/conv/box_plan.h"
#include "cuda/tile/conv/pixel_rows.cuh"

namespace jaxsparse {

// `Plain`: of a list of the grid's blocks. Its shape is then constants of the kernel.
template <bool Plain>
class BlockRows {
 public:
  __device__ BlockRows(const ConvParams& p, const RowList& list) : p_(p), pixels_(p, list) {}

  __device__ int rows() const { return Plain ? pixels_.tiles() * kBlockRows : pixels_.rows(); }

  // The first pixel of `block`; inactive past the list, or where its id makes no sense. A block may
  // lie outside of the image.
  __device__ OutputPixel Origin(int block) const {
    if constexpr (Plain) {
      OutputPixel origin = pixels_.InGrid(pixels_.Id(block), p_.by_blocks_h, p_.by_blocks_w);
      origin.y *= kBlockSide;
      origin.x *= kBlockSide;
      origin.active = origin.active && block < pixels_.tiles();  // behind the load of the id
      return origin;
    }
    const int row = block * kBlockRows;
    const Divisor &area = pixels_.list().tile_area, &width = pixels_.list().tile_width;
    const int slot = area.Quotient(row);
    const int inside = (row - slot * area.value) / kBlockSide;  // columns of 8 pixels
    const int line = width.Quotient(inside);
    OutputPixel origin = pixels_.TileOrigin(slot);
    origin.y += line * kBlockSide;
    origin.x += inside - line * width.value;
    origin.active = origin.active && row < pixels_.rows();  // behind the load of the id
    return origin;
  }

  // Line `line` % 8 of block `line` / 8: its first flat output pixel, and the mask's bits of its 8.
  struct Line {
    int pixel;
    uint32_t bits;
  };
  __device__ Line Find(int line) const {
    OutputPixel first = Origin(line / kBlockSide);
    first.y += line % kBlockSide;
    if (!first.active || first.y >= p_.out_h || first.x >= p_.out_w) return {0, 0};
    const uint32_t inside = 0xFFu >> max(kBlockSide - (p_.out_w - first.x), 0);
    return {pixels_.Flat(first), pixels_.MaskBits(first) & inside};
  }

 private:
  const ConvParams& p_;
  PixelRows<Plain> pixels_;
};

}  // namespace jaxsparse
