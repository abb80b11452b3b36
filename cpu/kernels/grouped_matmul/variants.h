// The rows of cpu/variants/grouped_matmul.toml, in its order.
#pragma once

#include <cstdint>
#include <iterator>

#include "cpu/tile/matmul/isa.h"

namespace jaxsparse {

struct GroupedVariant {
  const char* name;
  ProductShape tile32, tile16;
};

constexpr GroupedVariant kGroupedVariants[] = {
    {"auto", {6, 4}, {6, 2}},
    {"tall", {12, 2}, {6, 2}},
    {"wide", {6, 4}, {2, 4}},
};
constexpr int64_t kGroupedVariantCount = std::size(kGroupedVariants);

}  // namespace jaxsparse
