// The recorder of values that another op has written. No FFI and no device headers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxsparse {

struct BoundedRecordArgs {
  int64_t rows, n, segment, segments;
  const void* values;  // [rows, n] of `bytes` each
  int64_t bytes;       // 2 or 4
  uint32_t upper;      // the bound's bits
  uint8_t* codes;      // [rows, segments]
};

cudaError_t LaunchBoundedRecord(const BoundedRecordArgs& args, cudaStream_t stream);

}  // namespace jaxsparse
