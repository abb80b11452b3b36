// What the handlers hand to the CPU grouped products. No FFI headers.
#pragma once

#include <cstdint>

#include "cpu/core/dtype.h"

namespace jaxsparse {

struct GroupedShape {
  int64_t lhs_rows, depth, outputs, groups;
  int64_t sorted_rows;  // of the grouped order: that of group_sizes, gather, scatter and
                        // row_weights
  int64_t out_rows;
};

// Sorted row i of group g: out[scatter[i]] += row_weights[i] * lhs[gather[i]] @ rhs[g].
struct GroupedMatmulArgs {
  GroupedShape shape;
  DType in_type, out_type;
  bool transpose_rhs;
  int64_t variant;
  const void* lhs;         // [lhs_rows, depth]
  const void* rhs;         // [groups, depth, outputs], or [groups, outputs, depth] when transposed
  const int32_t* sizes;    // [groups]
  const int32_t* gather;   // [sorted_rows], nullptr: i
  const int32_t* scatter;  // [sorted_rows], nullptr: i, and rows that no group owns become 0
  const float* row_weights;  // [sorted_rows], nullptr: 1
  void* out;                 // [out_rows, outputs]
  void* scratch;
  int64_t scratch_bytes;
};

// drhs[g] = sum over its sorted rows i of row_weights[i] * lhs[gather[i]]^T @ gy[scatter[i]].
struct GroupedDrhsArgs {
  GroupedShape shape;  // out_rows: of gy
  DType type, out_type;
  const void* lhs;  // [lhs_rows, depth]
  const void* gy;   // [out_rows, outputs]
  const int32_t* sizes;
  const int32_t* gather;
  const int32_t* scatter;
  const float* row_weights;
  void* drhs;  // [groups, depth, outputs]
  void* scratch;
  int64_t scratch_bytes;
};

// The row that sorted row i reads or writes, or -1: an index out of range names none.
inline int64_t RowOf(const int32_t* indices, int64_t i, int64_t rows) {
  const int64_t row = indices == nullptr ? i : indices[i];
  return row >= 0 && row < rows ? row : -1;
}

}  // namespace jaxsparse
