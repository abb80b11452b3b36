// The rows of cpu/variants/masked_conv.toml, in its order.
#pragma once

#include <cstdint>
#include <iterator>
#include <string_view>

namespace jaxsparse {

enum class ConvWeights { kAuto, kInPlace, kPacked };

struct ConvTileShape {
  int rows, vectors;
};

struct ConvVariant {
  const char* name;
  ConvTileShape tile32, tile16;  // with 32 and with 16 vector registers
  ConvWeights weights;
};

constexpr ConvWeights ParseConvWeights(std::string_view text) {
  return text == "packed"    ? ConvWeights::kPacked
         : text == "inplace" ? ConvWeights::kInPlace
         : text == "auto"    ? ConvWeights::kAuto
                             : throw "weights must be packed, inplace or auto";
}

constexpr ConvVariant kMaskedConvVariants[] = {
#define JAXSPARSE_VARIANT(number, name, rows32, vectors32, rows16, vectors16, weights) \
  {name, {rows32, vectors32}, {rows16, vectors16}, ParseConvWeights(weights)},
#include "masked_conv_table.inc"
#undef JAXSPARSE_VARIANT
};
constexpr int64_t kMaskedConvVariantCount = std::size(kMaskedConvVariants);
constexpr int64_t kAutoVariant = 0;

// Whether cpu/tile/conv/shapes.h builds a tile with at least these rows, for every panel that may
// be left over.
constexpr bool TileIsBuilt(ConvTileShape tile, bool wide_file) {
  constexpr int kWide[] = {0, 12, 12, 8, 6};
  constexpr int kNarrow[] = {0, 12, 6, 4, 0};
  return tile.vectors >= 1 && tile.vectors <= 4 && tile.rows >= 1 &&
         tile.rows <= (wide_file ? kWide : kNarrow)[tile.vectors];
}

constexpr bool AllTilesAreBuilt() {
  for (const ConvVariant& row : kMaskedConvVariants) {
    if (!TileIsBuilt(row.tile32, true) || !TileIsBuilt(row.tile16, false)) return false;
  }
  return true;
}
static_assert(AllTilesAreBuilt(),
              "a row of masked_conv.toml names a tile that cpu/tile/conv/shapes.h does not build");

// The register tile of a variant for `vectors` vectors of output channels in a group. What "auto"
// takes leaves no narrow panel over if that can be and loads least a product.
inline ConvTileShape TileShapeOf(int64_t variant, bool wide_file, int64_t vectors) {
  if (variant != kAutoVariant) {
    const ConvVariant& row = kMaskedConvVariants[variant];
    return wide_file ? row.tile32 : row.tile16;
  }
  if (vectors <= 1) return {12, 1};
  if (!wide_file) return vectors % 3 == 0 ? ConvTileShape{4, 3} : ConvTileShape{6, 2};
  if (vectors % 4 == 0) return {6, 4};
  if (vectors % 3 == 0 || vectors % 2 != 0) return {8, 3};
  return {12, 2};
}

}  // namespace jaxsparse
