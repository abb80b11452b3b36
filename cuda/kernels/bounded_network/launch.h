// A whole stack of saturated layers on folded state. No FFI and no device headers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxsparse {

struct BoundedNetworkArgs {
  int64_t batch, n_in, n_out, depth, first, widest;  // first: distinct outputs of layer 0
  bool regroup;    // some rows may retire early: regroup the others between launches
  bool bundles;    // some layer's units are bundles; then widest covers n_in
  bool panels;     // the first kPanelLayers layers go by panels (panel.cuh),
  bool rows;       // and the first of them reads the images as they are
  const float* x;  // [batch, n_in]
  // [depth, 8]: starts, quads of indices, biases, n_in, distinct, flags, quads of weights, rows of
  // a unit
  const uint32_t* table;
  const int32_t* starts;
  int64_t starts_size;
  const void* indices;
  bool wide;  // int32 indices
  const float* weights;
  int64_t entries, weighed;  // indices and weights
  const float* bias;
  int64_t bias_size;
  const float* uppers;    // [depth]
  const int32_t* expand;  // [n_out], or nullptr
  float* out;             // [batch, n_out]
  uint8_t* codes;         // [batch]
  void* scratch;
};

// Bytes of workspace.
int64_t BoundedNetworkScratch(int64_t batch, int64_t widest, int64_t depth, bool panels);

// Once per device, before the first launch: raises the shared-memory limits.
cudaError_t PrepareBoundedNetwork();

cudaError_t LaunchBoundedNetwork(const BoundedNetworkArgs& args, cudaStream_t stream);

}  // namespace jaxsparse
