// What a recorder knows of a convolution's outputs before any product. No FFI and no device
// headers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxsparse {

constexpr int kMostWindowTaps = 9;

struct BoundedWindowsArgs {
  int64_t batch, height, width, segments;  // of the codes; batch * height * width < 2^31
  int64_t out_height, out_width, bytes;    // of an output; batch * out_height * out_width < 2^31
  int taps, stride_h, stride_w;
  int down[kMostWindowTaps], right[kMostWindowTaps];  // of a tap from the output times the stride
  const uint8_t* codes;                               // [batch, height, width, segments]
  const bool* cover;                                  // [batch, out_height, out_width]
  const void* table;  // [2^taps] of `bytes` each: what a window of decided pixels gives
  bool behind_table;  // the launch in front makes the table and reads nothing that this one writes
  bool based;         // outputs that are not covered are left alone, else zeroed
  float most_near;    // where a larger share of a sample is near, all outputs count as near
  void* out;          // [batch, out_height, out_width] of `bytes` each
  bool* near;         // [batch, out_height, out_width]
};

cudaError_t LaunchBoundedWindows(const BoundedWindowsArgs& args, cudaStream_t stream);

}  // namespace jaxsparse
