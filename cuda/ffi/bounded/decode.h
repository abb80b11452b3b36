// What the two handlers of saturated layers decode alike.
#pragma once

#include "xla/ffi/api/ffi.h"

namespace jaxsparse {

inline bool BoundedIndexType(const xla::ffi::AnyBuffer& indices) {
  const auto type = indices.element_type();
  return type == xla::ffi::DataType::U16 || type == xla::ffi::DataType::S32;
}

}  // namespace jaxsparse
