// What the handlers of the matrix products decode alike.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cpu/ffi/masked_conv_decode.h"
#include "xla/ffi/api/ffi.h"

namespace jaxsparse {

inline xla::ffi::Future FailedProduct(const std::string& why) {
  xla::ffi::Promise promise;
  xla::ffi::Future future(promise);
  promise.SetError(xla::ffi::Error::InvalidArgument(why));
  return future;
}

// nullptr for an absent operand.
template <xla::ffi::DataType type, size_t rank>
auto* PresentOrNull(const xla::ffi::Buffer<type, rank>& buffer) {
  return buffer.element_count() > 0 ? buffer.typed_data() : nullptr;
}

}  // namespace jaxsparse
