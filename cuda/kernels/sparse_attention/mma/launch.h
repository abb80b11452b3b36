// Block-sparse attention and its gradients by mma.sync, on any device from sm_80 on.
#pragma once

#include "cuda/kernels/sparse_attention/args.h"

namespace jaxsparse {

// Why these kernels do not take a problem, or its gradients; nullptr when they do.
const char* AttentionMmaReason(const AttentionArgs& a);

// Loads every kernel onto the current device.
cudaError_t PrepareAttentionMma();

cudaError_t LaunchAttentionMma(const AttentionArgs& a, DType dtype, cudaStream_t stream);

// Bytes of AttentionGradArgs::delta.
int64_t AttentionDeltaBytes(const AttentionArgs& a);

// Writes delta, then dq, dk and dv.
cudaError_t LaunchAttentionMmaGrad(const AttentionGradArgs& g, DType dtype, cudaStream_t stream);

}  // namespace jaxsparse
