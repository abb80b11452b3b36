// What the CPU handlers share: dtypes, checked windows, errors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cpu/core/dtype.h"
#include "cpu/core/geometry.h"
#include "xla/ffi/api/ffi.h"

namespace jaxsparse {

// Empty where the element type is not one of float32, bfloat16 and float16.
inline std::optional<DType> DTypeOf(xla::ffi::DataType type) {
  switch (type) {
    case xla::ffi::DataType::F32:
      return DType::kF32;
    case xla::ffi::DataType::BF16:
      return DType::kBF16;
    case xla::ffi::DataType::F16:
      return DType::kF16;
    default:
      return std::nullopt;
  }
}

inline bool ValidGeometry(const ConvGeometry& g) {
  return g.stride_h >= 1 && g.stride_w >= 1 && g.dilation_h >= 1 && g.dilation_w >= 1 &&
         g.lhs_dilation_h >= 1 && g.lhs_dilation_w >= 1 && g.groups >= 1 &&
         g.in_c % g.groups == 0 && g.out_c % g.groups == 0;
}

inline xla::ffi::Future FailedFuture(const xla::ffi::Error& error) {
  xla::ffi::Promise promise;
  xla::ffi::Future future(promise);
  promise.SetError(error);
  return future;
}

inline xla::ffi::Future FailedFuture(const std::string& message) {
  return FailedFuture(xla::ffi::Error::InvalidArgument(message));
}

}  // namespace jaxsparse
