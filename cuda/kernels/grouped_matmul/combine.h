// Adds up sorted rows into rows of the result.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/kernels/grouped_matmul/workspace.h"
#include "cuda/tile/load/row_gather.cuh"

namespace jaxsparse {

struct CombineRequest {
  CombineSlots slots;
  SortedRows lhs;        // which sorted rows count
  const int32_t* sizes;  // [groups]
  int groups, sorted_rows;
  const void* rows;  // [sorted_rows, outputs]
  void* out;         // [out_rows, outputs], of the same type
  DType type;
  int64_t out_rows, outputs;
};

// One launch.
cudaError_t LaunchCombine(const CombineRequest& request, cudaStream_t stream);

}  // namespace jaxsparse
