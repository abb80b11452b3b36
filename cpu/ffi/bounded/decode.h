// What the two handlers of saturated layers decode alike.
#pragma once

#include <cstdint>

#include "contracts/call.h"

namespace jaxsparse {

inline bool BoundedIndexIsWide(const contract::Array& indices) {
  return indices.type == xla::ffi::DataType::S32;
}

// Whether every entry of an expansion names a distinct row.
inline bool BoundedExpandFits(const contract::Array& expand, int64_t distinct) {
  for (int64_t n = 0; n < expand.size; ++n) {
    const int32_t row = expand.as<int32_t>()[n];
    if (row < 0 || row >= distinct) return false;
  }
  return true;
}

}  // namespace jaxsparse
