#include "cpu/kernels/masked_conv/gather.h"

#include <algorithm>

namespace jaxsparse {

bool RowGather::Masked(int64_t batch, int64_t y, int64_t x) const {
  const int64_t word = (batch * geometry_.in_h + y) * geometry_.in_row_words() + x / 32;
  return (args_.x_words[word] >> (x % 32) & 1u) == 0;
}

// The address is a float's only when the input is float32; a driver converts the others before they
// are multiplied.
const float* RowGather::RowAt(int64_t batch, int64_t y, int64_t x) const {
  const int64_t pixel = (batch * geometry_.in_h + y) * geometry_.in_w + x;
  return reinterpret_cast<const float*>(ElementAt(args_.x, pixel * geometry_.in_c, args_.in_type));
}

bool RowGather::Inside(const Pixel* pixels, int64_t count) const {
  return args_.x_words == nullptr &&
         std::all_of(pixels, pixels + count, [&](const Pixel& p) { return taps_.inside(p); });
}

int64_t RowGather::RunOf(const Pixel* pixels, int64_t count) const {
  const bool adjacent = geometry_.groups == 1 && geometry_.dilation_w == 1;
  return adjacent && Inside(pixels, count) ? geometry_.kernel_w : 1;
}

int64_t RowGather::LoadRuns(const Pixel* pixels, int64_t count, int64_t block, const float** rows,
                            int32_t* live) const {
  const ConvGeometry& g = geometry_;
  const int64_t step = g.dilation_h * g.in_w * g.in_c * SizeOf(args_.in_type);
  for (int64_t r = 0; r < block; ++r) {
    const Pixel& pixel = pixels[r < count ? r : 0];
    const char* corner = reinterpret_cast<const char*>(
        RowAt(pixel.batch, *taps_.rows(pixel.y), *taps_.cols(pixel.x)));
    for (int64_t ky = 0; ky < g.kernel_h; ++ky) {
      rows[ky * block + r] = reinterpret_cast<const float*>(corner + ky * step);
    }
  }
  for (int64_t ky = 0; ky < g.kernel_h; ++ky) live[ky] = static_cast<int32_t>(ky);
  return g.kernel_h;
}

int64_t RowGather::Load(const Pixel* pixels, int64_t count, int64_t block, const float** rows,
                        int32_t* live) const {
  const ConvGeometry& g = geometry_;
  int64_t live_count = 0;
  for (int64_t ky = 0; ky < g.kernel_h; ++ky) {
    for (int64_t kx = 0; kx < g.kernel_w; ++kx) {
      const int64_t tap = ky * g.kernel_w + kx;
      bool any = false;
      for (int64_t r = 0; r < block; ++r) {
        const float*& row = rows[tap * block + r];
        row = zeros_;
        if (r >= count) continue;
        const Pixel& pixel = pixels[r];
        const int64_t y = taps_.rows(pixel.y)[ky], x = taps_.cols(pixel.x)[kx];
        if (y < 0 || x < 0) continue;
        if (args_.x_words != nullptr && Masked(pixel.batch, y, x)) continue;
        row = RowAt(pixel.batch, y, x);
        any = true;
      }
      if (any) live[live_count++] = static_cast<int32_t>(tap);
    }
  }
  return live_count;
}

}  // namespace jaxsparse
