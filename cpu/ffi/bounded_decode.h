// What the two handlers of saturated layers decode alike.
#pragma once

#include <cstdint>

#include "xla/ffi/api/ffi.h"

namespace jaxsparse {

inline bool BoundedIndexType(const xla::ffi::AnyBuffer& indices) {
  const auto type = indices.element_type();
  return type == xla::ffi::DataType::U16 || type == xla::ffi::DataType::S32;
}

inline bool BoundedIndexIsWide(const xla::ffi::AnyBuffer& indices) {
  return indices.element_type() == xla::ffi::DataType::S32;
}

// Whether every entry of an expansion names a distinct row.
inline bool BoundedExpandFits(const xla::ffi::BufferR1<xla::ffi::S32>& expand, int64_t n_out,
                              int64_t distinct) {
  const int64_t size = static_cast<int64_t>(expand.element_count());
  if (size == 0) return n_out == distinct;
  if (size != n_out) return false;
  for (int64_t n = 0; n < size; ++n) {
    const int32_t row = expand.typed_data()[n];
    if (row < 0 || row >= distinct) return false;
  }
  return true;
}

inline xla::ffi::Future BoundedFailed(const char* message) {
  xla::ffi::Promise promise;
  xla::ffi::Future future(promise);
  promise.SetError(xla::ffi::Error::InvalidArgument(message));
  return future;
}

}  // namespace jaxsparse
