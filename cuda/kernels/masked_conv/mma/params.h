// The kernels of kernel.cuh as the launcher sees them: their parameters, and one struct
// for a row of variants/masked_conv_mma.toml in one element type.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/tile/conv/params.h"

namespace jaxsparse {

inline constexpr int kMmaThreads = 128;  // of a CTA

struct MmaParams {
  ConvParams conv;      // counts its windows in pixels: pixel_units is 1
  const void* weights;  // 16 bits: [K, columns]; float32: [out_c, K], rounded to TF32
  int64_t pixel_bytes;  // of the input
  int units;            // of K in a tap: an input pixel, the last unit filled up with zeros
  int k_units;          // taps * units
  int steps;            // of kStepUnits units
  int columns;          // of the weights' rows: out_c, filled up to whole units
  bool taps_first;      // K runs over the taps of a step's channels, then over the channels
  bool ragged_out;      // results are stored one by one
};

// `Ragged`: input pixels are not multiples of a unit.
template <typename T, int TileM, int TileN, int Stages, bool Ragged>
struct MaskedConvMma {
  // Raises the shared-memory limit, loads the kernel, and says how many CTAs the current device
  // holds at once.
  static cudaError_t Prepare(int* ctas);

  static cudaError_t Launch(const MmaParams& p, int ctas, cudaStream_t stream);
};

}  // namespace jaxsparse
