// The rows of cpu/variants/masked_matmul.toml, in its order.
#pragma once

#include <cstdint>
#include <iterator>

#include "cpu/tile/matmul/isa.h"

namespace jaxsparse {

// `cost`: cycles of one tile for one column of its strip and 64 outputs.
struct MaskedVariant {
  const char* name;
  ProductShape tile32, tile16;
  double cost32, cost16;
};

constexpr MaskedVariant kMaskedVariants[] = {
    {"auto", {6, 4}, {6, 2}, 0.0, 0.0},   {"wide", {6, 4}, {6, 2}, 12.5, 26.0},
    {"quad", {4, 4}, {4, 2}, 8.5, 18.0},  {"pair", {2, 4}, {2, 4}, 5.0, 10.0},
    {"single", {1, 4}, {1, 4}, 4.5, 9.0},
};
constexpr int64_t kMaskedVariantCount = std::size(kMaskedVariants);

}  // namespace jaxsparse
