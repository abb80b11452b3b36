// Attention of few queries, split over their lists.
#pragma once

#include "cuda/kernels/sparse_attention/args.h"

namespace jaxsparse {

// Why the kernels do not take a problem; nullptr when they do.
const char* AttentionSplitReason(const AttentionArgs& a, DType dtype);

// Loads every kernel onto the current device.
cudaError_t PrepareAttentionSplit();

// As many splits of a list as `scratch_bytes` have room for: each takes a float for every element
// of the result and of lse. One split needs none.
cudaError_t LaunchAttentionSplit(const AttentionArgs& a, DType dtype, void* scratch,
                                 int64_t scratch_bytes, cudaStream_t stream);

}  // namespace jaxsparse
