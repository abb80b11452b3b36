// Launchers of block-sparse attention on Hopper's tensor cores.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/kernels/sparse_attention/args.h"

namespace jaxsparse {

// Why these kernels cannot run this call on the current device, or nullptr when they can.
const char* HopperAttentionReason(const AttentionArgs& args, DType type);

// Once per device, before the first launch and outside any capture.
cudaError_t PrepareHopperAttention();

// Blocks of a multiple of 128 queries share one list of keys between two warpgroups; others take 64
// queries at a time. `counter`, an int32 of scratch memory, lets CTAs take query tiles as they come
// free; without it each takes every n-th.
cudaError_t LaunchHopper(const AttentionArgs& args, DType type, cudaStream_t stream,
                         int* counter = nullptr);

}  // namespace jaxsparse
