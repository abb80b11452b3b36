#include "cpu/kernels/masked_matmul/cover.h"

#include <algorithm>

namespace jaxsparse {
namespace {

constexpr int64_t kSamples = 64;

// Blocks of the mask's columns that some of the mask rows [first, last) has.
int64_t UnionSize(const BlockBits& bits, int64_t first, int64_t last) {
  int64_t size = 0;
  for (int64_t w = 0; w < bits.row_words; ++w) {
    uint32_t word = 0;
    for (int64_t row = first; row < last; ++row) word |= bits.words[row * bits.row_words + w];
    size += __builtin_popcount(word);
  }
  return size;
}

// Cost per row of the matrix, over sampled strips.
double CoverCost(const BlockBits& bits, int64_t height, double cost) {
  const int64_t mask_rows = bits.lists * bits.rows;
  const int64_t each = std::max<int64_t>(StripRows(bits, height) / bits.row_size, 1);
  const int64_t strips = std::max<int64_t>(mask_rows / each, 1);
  const int64_t samples = std::min(strips, kSamples);
  int64_t covered = 0;
  for (int64_t s = 0; s < samples; ++s) {
    const int64_t first = strips * s / samples * each;
    covered += UnionSize(bits, first, std::min(first + each, mask_rows));
  }
  const int64_t rows = std::min(height, each * bits.row_size);
  return static_cast<double>(covered) / static_cast<double>(samples) * cost /
         static_cast<double>(rows);
}

}  // namespace

int64_t LeastCover(const MaskedMatmulArgs& args, bool wide_file) {
  if (args.a_bits.all()) return 1;
  int64_t best = 1;
  double least = 0.0;
  for (int64_t v = 1; v < kMaskedVariantCount; ++v) {
    const MaskedVariant& variant = kMaskedVariants[v];
    const ProductShape tile = wide_file ? variant.tile32 : variant.tile16;
    const double cost =
        CoverCost(args.a_bits, tile.rows, wide_file ? variant.cost32 : variant.cost16);
    if (v == 1 || cost < least) {
      best = v;
      least = cost;
    }
  }
  return best;
}

}  // namespace jaxsparse
