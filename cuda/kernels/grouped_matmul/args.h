// Host-side description of one grouped product: what a handler hands to a launcher. No FFI and no
// device headers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/core/dtype.h"

namespace jaxsparse {

// Of the product: lhs [lhs_rows, depth], rhs [groups, depth, outputs], out [out_rows, outputs]. Of
// its gradient for rhs: lhs the same, gy [out_rows, outputs], drhs [groups, depth, outputs].
struct GroupedShape {
  int64_t lhs_rows, depth, outputs, groups, sorted_rows, out_rows;
};

// Which sorted rows there are: `gather` and `scatter` may be nullptr (row i), and so may
// `row_weights` (1).
struct GroupedIndex {
  const int32_t* sizes;
  const int32_t* gather;
  const int32_t* scatter;
  const float* row_weights;
};

struct GroupedMatmulArgs {
  GroupedShape shape;
  GroupedIndex index;
  DType in_type, out_type;
  bool scatters;       // sorted rows are added up into rows of out
  bool transpose_rhs;  // rhs is [groups, outputs, depth]
  bool highest;        // float32 products in float32, not TF32
  const void* lhs;
  const void* rhs;
  void* out;
  void* scratch;
  int64_t scratch_bytes;
};

struct GroupedDrhsArgs {
  GroupedShape shape;
  GroupedIndex index;
  DType in_type, out_type;  // of lhs and gy; of drhs
  bool highest;
  const void* lhs;
  const void* gy;
  void* drhs;
  void* scratch;
  int64_t scratch_bytes;
};

}  // namespace jaxsparse
