// Rows of a small table written to chosen rows of a result. No FFI and no device headers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxsparse {

struct BoundedFillArgs {
  int64_t rows, bytes, entries;  // of the result, of a row, of the table
  const void* table;             // [entries] of `bytes` each
  const int32_t* select;         // [rows]; outside [0, entries): the row is left alone
  void* out;                     // [rows] of `bytes` each
};

cudaError_t LaunchBoundedFill(const BoundedFillArgs& args, cudaStream_t stream);

}  // namespace jaxsparse
