// A feed-forward network on few tokens, which reads the rows of the last matrix that some
// activation needs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/core/dtype.h"

namespace jaxsparse {

inline constexpr int kFfnMostTokens = 8;
inline constexpr int kFfnVector = 8;  // depth, hidden and outputs are multiples of it

struct FfnArgs {
  const void* x;       // [tokens, depth]
  const void* w_up;    // [depth, hidden]
  const void* w_gate;  // the same; nullptr: none
  const void* w_down;  // [hidden, outputs]
  void* y;             // [tokens, outputs]
  int tokens, depth, hidden, outputs;
  DType type;
  bool squared;
  void* scratch;
};

// Of the shapes alone.
int64_t FfnScratchBytes(int64_t tokens, int64_t hidden, int64_t outputs);

// Two launches, of which the second starts early.
cudaError_t LaunchFfn(const FfnArgs& args, cudaStream_t stream);

// Once per device, before the first launch and outside any capture.
cudaError_t PrepareFfn();

}  // namespace jaxsparse
