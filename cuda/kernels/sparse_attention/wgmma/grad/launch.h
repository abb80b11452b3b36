// Launchers of the gradients of block-sparse attention on Hopper's tensor cores.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/kernels/sparse_attention/args.h"

namespace jaxsparse {

// Why these kernels cannot run this call on the current device, or nullptr when they can.
const char* HopperBackwardReason(const AttentionGradArgs& args, DType type);

inline bool FitsHopperBackward(const AttentionGradArgs& args, DType type) {
  return HopperBackwardReason(args, type) == nullptr;
}

// Once per device, before the first launch and outside any capture.
cudaError_t PrepareHopperBackward();

// dq, dk, dv, and delta on the way. The lse of the forward call is needed.
// `counters`, two int32 of scratch memory, let CTAs take tiles as they come free; without them each
// takes every n-th.
cudaError_t LaunchHopperBackward(const AttentionGradArgs& args, DType type, cudaStream_t stream,
                                 int* counters = nullptr);

}  // namespace jaxsparse
