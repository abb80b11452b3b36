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

// Consecutive pixels of one row have every tap where the first and the last have.
bool RowGather::Inside(const Pixel* pixels, int64_t count) const {
  if (args_.x_words != nullptr) return false;
  if (Adjacent(pixels, count)) return taps_.inside(pixels[0]) && taps_.inside(pixels[count - 1]);
  return std::all_of(pixels, pixels + count, [&](const Pixel& p) { return taps_.inside(p); });
}

int64_t RowGather::RunOf(const Pixel* pixels, int64_t count) const {
  const bool adjacent =
      geometry_.kernel_w == 1 || (geometry_.groups == 1 && geometry_.dilation_w == 1);
  return adjacent && Inside(pixels, count) ? geometry_.kernel_w : 0;
}

int64_t RowGather::LoadRuns(const Pixel* pixels, int64_t count, int64_t block, const float** rows,
                            int32_t* live) const {
  const ConvGeometry& g = geometry_;
  const int64_t row_bytes = g.dilation_h * g.in_w * g.in_c * SizeOf(args_.in_type);
  const int64_t pixel_bytes = g.stride_w * g.in_c * SizeOf(args_.in_type);
  const bool adjacent = Adjacent(pixels, count);
  const char* corner = nullptr;
  for (int64_t r = 0; r < block; ++r) {
    if (r == 0 || (r < count && !adjacent)) {
      const Pixel& pixel = pixels[r];
      corner = reinterpret_cast<const char*>(
          RowAt(pixel.batch, *taps_.rows(pixel.y), *taps_.cols(pixel.x)));
    } else if (r < count) {
      corner += pixel_bytes;
    }
    for (int64_t ky = 0; ky < g.kernel_h; ++ky) {
      rows[ky * block + r] = reinterpret_cast<const float*>(corner + ky * row_bytes);
    }
  }
  for (int64_t ky = 0; ky < g.kernel_h; ++ky) live[ky] = static_cast<int32_t>(ky);
  return g.kernel_h;
}

// `live` marks the taps that a pixel has before it lists them.
int64_t RowGather::Load(const Pixel* pixels, int64_t count, int64_t block, const float** rows,
                        int32_t* live) const {
  const int64_t taps = geometry_.taps();
  std::fill_n(live, taps, 0);
  for (int64_t r = 0; r < count; ++r) LoadPixel(pixels[r], block, rows + r, live);
  for (int64_t r = count; r < block; ++r) {
    for (int64_t tap = 0; tap < taps; ++tap) rows[tap * block + r] = zeros_;
  }
  int64_t live_count = 0;
  for (int64_t tap = 0; tap < taps; ++tap) {
    const bool any = live[tap] != 0;
    live[live_count] = static_cast<int32_t>(tap);
    live_count += any;
  }
  return live_count;
}

void RowGather::LoadPixel(const Pixel& pixel, int64_t block, const float** rows,
                          int32_t* marks) const {
  const ConvGeometry& g = geometry_;
  const int32_t *ys = taps_.rows(pixel.y), *xs = taps_.cols(pixel.x);
  const int64_t pixel_bytes = g.in_c * SizeOf(args_.in_type);
  for (int64_t ky = 0; ky < g.kernel_h; ++ky, rows += g.kernel_w * block, marks += g.kernel_w) {
    const char* row =
        reinterpret_cast<const char*>(RowAt(pixel.batch, std::max<int64_t>(ys[ky], 0), 0));
    for (int64_t kx = 0; kx < g.kernel_w; ++kx) {
      bool exists = (ys[ky] | xs[kx]) >= 0;
      if (exists && args_.x_words != nullptr) exists = !Masked(pixel.batch, ys[ky], xs[kx]);
      rows[kx * block] =
          exists ? reinterpret_cast<const float*>(row + xs[kx] * pixel_bytes) : zeros_;
      marks[kx] |= exists;
    }
  }
}

}  // namespace jaxsparse
