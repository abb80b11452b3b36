// Columns first: every row of the output's mask is spread over the columns that it reads, a tap
// after another, by shifts at stride 1 and bit by bit otherwise. Then rows: an input row is the OR
// of the spread rows that read it.
#include "cpu/index/reach.h"

#include <algorithm>
#include <vector>

namespace jaxsparse::cpu {
namespace {

int64_t WordsOf(int64_t width) { return (width + 31) / 32; }

// Moves the bits of `row` by `shift` columns to the right and adds them to `out`.
void AddShifted(const uint32_t* row, int64_t row_words, int64_t shift, int64_t words,
                uint32_t* out) {
  for (int64_t w = 0; w < words; ++w) {
    const int64_t first = 32 * w - shift, word = first >> 5, skew = first & 31;
    const auto at = [&](int64_t i) { return i >= 0 && i < row_words ? uint64_t{row[i]} : 0; };
    out[w] |= static_cast<uint32_t>((at(word + 1) << 32 | at(word)) >> skew);
  }
}

// Adds the input columns that each set bit of `row` reads through a tap at `offset`.
void AddSpread(const uint32_t* row, int64_t row_words, const ReachAxis& axis, int64_t offset,
               int64_t width, uint32_t* out) {
  for (int64_t w = 0; w < row_words; ++w) {
    for (uint32_t bits = row[w]; bits != 0; bits &= bits - 1) {
      const int64_t at = (32 * w + __builtin_ctz(bits)) * axis.stride + offset;
      const int64_t n = at / axis.lhs_dilation;
      if (at < 0 || n >= width || n * axis.lhs_dilation != at) continue;
      out[n / 32] |= 1u << (n % 32);
    }
  }
}

// The input columns that a row of the output's mask reads.
void SpreadRow(const ReachShape& shape, const uint32_t* row, uint32_t* out) {
  const ReachAxis& axis = shape.columns;
  const int64_t row_words = WordsOf(shape.out_width), words = WordsOf(shape.width);
  std::fill(out, out + words, 0);
  for (int64_t k = 0; k < axis.taps; ++k) {
    const int64_t offset = k * axis.dilation - axis.pad;
    if (axis.stride == 1 && axis.lhs_dilation == 1) {
      AddShifted(row, row_words, offset, words, out);
    } else {
      AddSpread(row, row_words, axis, offset, shape.width, out);
    }
  }
  if (shape.width % 32 != 0 && words > 0) out[words - 1] &= (1u << shape.width % 32) - 1;
}

}  // namespace

void ReachMask(const ReachShape& shape, const uint32_t* words, const uint32_t* keep,
               uint32_t* out) {
  const int64_t row_words = WordsOf(shape.out_width), count = WordsOf(shape.width);
  std::vector<uint32_t> spread(shape.out_height * count);
  for (int64_t image = 0; image < shape.images; ++image) {
    for (int64_t o = 0; o < shape.out_height; ++o) {
      SpreadRow(shape, words + (image * shape.out_height + o) * row_words, &spread[o * count]);
    }
    for (int64_t y = 0; y < shape.height; ++y) {
      uint32_t* row = out + (image * shape.height + y) * count;
      std::fill(row, row + count, 0);
      for (int64_t k = 0; k < shape.rows.taps; ++k) {
        const int64_t at = y * shape.rows.lhs_dilation + shape.rows.pad - k * shape.rows.dilation;
        const int64_t o = at / shape.rows.stride;
        if (at < 0 || o >= shape.out_height || o * shape.rows.stride != at) continue;
        for (int64_t w = 0; w < count; ++w) row[w] |= spread[o * count + w];
      }
      if (keep == nullptr) continue;
      const uint32_t* kept = keep + (image * shape.height + y) * count;
      for (int64_t w = 0; w < count; ++w) row[w] &= kept[w];
    }
  }
}

}  // namespace jaxsparse::cpu
