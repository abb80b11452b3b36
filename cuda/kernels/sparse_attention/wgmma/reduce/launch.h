// Launcher of the gradients of block-sparse attention that adds dq up in global memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/kernels/sparse_attention/args.h"

namespace jaxsparse {

// Why this kernel does not take calls of these sizes, or nullptr when it does.
const char* HopperReduceSizes(const AttentionArgs& a);

// Why this kernel cannot run this call on the current device, or nullptr when it can.
const char* HopperReduceReason(const AttentionGradArgs& args, DType type);

// Bytes of the float32 sums of dq.
int64_t AttentionSumBytes(const AttentionArgs& a);

// Once per device, before the first launch and outside any capture.
cudaError_t PrepareHopperReduce();

// dq, dk, dv, and delta on the way. `sums`: AttentionSumBytes of scratch memory, aligned to 16
// bytes; `counter`: an int32 of scratch memory.
cudaError_t LaunchHopperReduce(const AttentionGradArgs& args, DType type, cudaStream_t stream,
                               float* sums, int* counter);

}  // namespace jaxsparse
