// Host side of TMA: tensor maps of stacks of row-major matrices, such as the weights of all groups.
#pragma once

#include <cstdint>

#include "cuda/core/tensor_map.h"

namespace jaxsparse {

// A map of a row-major [count, rows, columns] array, loaded in boxes of [1, box_rows, box_columns]
// whose rows are 128 bytes and arrive with the 128-byte swizzle. A box that reaches over a matrix's
// edge reads zeros there, not the next matrix. `base` is 16-byte aligned and so is every row.
inline cudaError_t EncodeStackMap(CUtensorMap* map, CUtensorMapDataType type, int element_bytes,
                                  const void* base, int64_t count, int64_t rows, int64_t columns,
                                  int box_rows, int box_columns) {
  const auto encode = TensorMapEncoder();
  if (encode == nullptr) return cudaErrorNotSupported;
  const auto row_bytes = static_cast<cuuint64_t>(columns) * element_bytes;
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows),
                               static_cast<cuuint64_t>(count)};
  const cuuint64_t strides[2] = {row_bytes, row_bytes * static_cast<cuuint64_t>(rows)};
  const cuuint32_t box[3] = {static_cast<cuuint32_t>(box_columns),
                             static_cast<cuuint32_t>(box_rows), 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUresult result =
      encode(map, type, 3, const_cast<void*>(base), sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace jaxsparse
