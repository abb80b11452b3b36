// Element types as the kernels name them.
#pragma once

#include "cpu/kernels/masked_conv/args.h"
#include "xla/ffi/api/ffi.h"

namespace jaxsparse {

// Of a type that a contract allows where it says f32, bf16 or f16.
inline DType ToDType(xla::ffi::DataType type) {
  if (type == xla::ffi::DataType::BF16) return DType::kBF16;
  return type == xla::ffi::DataType::F16 ? DType::kF16 : DType::kF32;
}

}  // namespace jaxsparse
