// Gather-load for one block of pixels: per tap and pixel, the address of the input row it reads.
#pragma once

#include <cstdint>

#include "cpu/kernels/masked_conv/pixels.h"
#include "cpu/tile/conv/isa.h"

namespace jaxsparse {

// Points into x, or at a row of zeros for a phantom read and for a masked input pixel.
class RowGather {
 public:
  static constexpr int64_t kMaxRows = kMaxTileRows;

  RowGather(const MaskedConvArgs& args, const TapTable& taps, const float* zeros)
      : args_(args), geometry_(args.geometry), taps_(taps), zeros_(zeros) {}

  // Fills rows[taps][block] for `count` <= block pixels (any readable row for the others) and lists
  // the taps that some pixel has. Returns how many there are.
  int64_t Load(const Pixel* pixels, int64_t count, int64_t block, const float** rows,
               int32_t* live) const;

  // How many taps lie side by side in x and in the kernel for all these pixels, so that they can be
  // taken as one tap of more channels: a kernel row's, or 0 where a tap is missing or apart.
  int64_t RunOf(const Pixel* pixels, int64_t count) const;

  // Load where RunOf is not 0: rows[kernel rows][block].
  int64_t LoadRuns(const Pixel* pixels, int64_t count, int64_t block, const float** rows,
                   int32_t* live) const;

 private:
  bool Inside(const Pixel* pixels, int64_t count) const;
  // Whether the pixels, which are in raster order, are consecutive ones of a row.
  static bool Adjacent(const Pixel* pixels, int64_t count) {
    const Pixel &first = pixels[0], &last = pixels[count - 1];
    return last.x - first.x == count - 1 && last.y == first.y && last.batch == first.batch;
  }
  void LoadPixel(const Pixel& pixel, int64_t block, const float** rows, int32_t* marks) const;
  bool Masked(int64_t batch, int64_t y, int64_t x) const;
  const float* RowAt(int64_t batch, int64_t y, int64_t x) const;

  const MaskedConvArgs& args_;
  const ConvGeometry& geometry_;
  const TapTable& taps_;
  const float* zeros_;
};

}  // namespace jaxsparse
