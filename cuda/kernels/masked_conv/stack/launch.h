// Launcher of the stack of masked convolutions: layers of one geometry that share a list, each
// reading what the one before wrote, in one launch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/kernels/masked_conv/args.h"

namespace jaxsparse {

inline constexpr int kMaxStack = 12;

// A layer. It reads the result of the layer before, the first one `MaskedConvStackArgs::x`.
struct StackLayer {
  const void* kernel;    // [kernel_h, kernel_w, channels, channels or, of the last, last_outputs]
  const float* bias;     // nullptr: none
  const void* residual;  // x, or an earlier layer's result; nullptr: none
  void* out;             // holds the base
  Activation activation;
};

struct MaskedConvStackArgs {
  ConvGeometry geometry;  // of every layer, but
  int64_t last_outputs;   // what the last one has in place of out_c
  TileList tiles;
  DType type;
  const void* x;
  int layers;
  StackLayer layer[kMaxStack];
  uint32_t* done;  // workspace: [kMaxStack]
};

// Why the kernel cannot run this on the current device, or nullptr when it can.
const char* MaskedConvStackReason(const MaskedConvStackArgs& args);

// Once per device, before the first launch and outside any capture.
cudaError_t PrepareMaskedConvStack();

// Writes every active pixel of the first min(count, capacity) tiles of each layer's result and
// touches nothing else. One cooperative launch; device work only.
cudaError_t LaunchMaskedConvStack(const MaskedConvStackArgs& args, cudaStream_t stream);

}  // namespace jaxsparse
