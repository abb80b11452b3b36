// Columns first: a row of the output's mask is spread over the columns that it reads, a tap after
// another, by shifts at stride 1 and bit by bit otherwise. Then rows: the spread row is added to
// every input row that it reads. Only taps that reach the input are visited.
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

// The taps k of an axis with low < k * dilation < high.
struct Taps {
  int64_t first, last;
};

Taps TapsBetween(const ReachAxis& axis, int64_t low, int64_t high) {
  const int64_t first = low < 0 ? 0 : low / axis.dilation + 1;
  const int64_t last = high <= 0 ? 0 : (high - 1) / axis.dilation + 1;
  return {first, std::min(last, axis.taps)};
}

// The input columns that a row of the output's mask reads.
void SpreadRow(const ReachShape& shape, const uint32_t* row, uint32_t* out) {
  const ReachAxis& axis = shape.columns;
  const int64_t row_words = WordsOf(shape.out_width), words = WordsOf(shape.width);
  std::fill(out, out + words, 0);
  const Taps taps = TapsBetween(axis, axis.pad - shape.out_width * axis.stride,
                                axis.pad + shape.width * axis.lhs_dilation);
  for (int64_t k = taps.first; k < taps.last; ++k) {
    const int64_t offset = k * axis.dilation - axis.pad;
    if (axis.stride == 1 && axis.lhs_dilation == 1) {
      AddShifted(row, row_words, offset, words, out);
    } else {
      AddSpread(row, row_words, axis, offset, shape.width, out);
    }
  }
  if (shape.width % 32 != 0 && words > 0) out[words - 1] &= (1u << shape.width % 32) - 1;
}

// Adds the spread row `o` of the output's mask to the input rows that it reads.
void AddRow(const ReachShape& shape, int64_t o, const uint32_t* spread, uint32_t* image) {
  const ReachAxis& axis = shape.rows;
  const int64_t words = WordsOf(shape.width);
  const int64_t origin = o * axis.stride - axis.pad;
  const Taps taps = TapsBetween(axis, -origin - 1, shape.height * axis.lhs_dilation - origin);
  for (int64_t k = taps.first; k < taps.last; ++k) {
    const int64_t at = origin + k * axis.dilation;
    if (at % axis.lhs_dilation != 0) continue;
    uint32_t* row = image + at / axis.lhs_dilation * words;
    for (int64_t w = 0; w < words; ++w) row[w] |= spread[w];
  }
}

}  // namespace

void ReachMask(const ReachShape& shape, const uint32_t* words, const uint32_t* keep,
               uint32_t* out) {
  const int64_t row_words = WordsOf(shape.out_width), count = WordsOf(shape.width);
  const int64_t size = shape.height * count;
  std::fill(out, out + shape.images * size, 0);
  std::vector<uint32_t> spread(count);
  for (int64_t image = 0; image < shape.images && row_words > 0; ++image) {
    for (int64_t o = 0; o < shape.out_height; ++o) {
      SpreadRow(shape, words + (image * shape.out_height + o) * row_words, spread.data());
      AddRow(shape, o, spread.data(), out + image * size);
    }
  }
  if (keep == nullptr) return;
  for (int64_t i = 0; i < shape.images * size; ++i) out[i] &= keep[i];
}

}  // namespace jaxsparse::cpu
