// The seam between the portable driver of frozen weights and the units compiled for one
// instruction set: kernels on float32.
#pragma once

#include <cstdint>

#include "contracts/enums.gen.h"
#include "cpu/core/dtype.h"

namespace jaxsparse {

constexpr int64_t kPrunedLanes = 16;    // pixels of a vector, channels of a unit
constexpr int64_t kPrunedVectors = 14;  // most vectors of a tile

// sums[slot of row][pixel] += weights of the row in one channel block * windows of the panel.
struct PrunedRows {
  const int32_t* rows;   // visited, in this order
  const int32_t* slots;  // where in `sums` each visited row lies; -1: skip it
  int64_t count;
  const int32_t* starts;  // of every row: its entries in this block begin here
  const int32_t* ends;    // and end here
  int64_t entries;
  const float* values;      // [entries]
  const uint16_t* windows;  // [entries], first float of each window in the panel
  const float* panel;
  int64_t last_window;  // largest window start that lies inside the panel
  const float* bias;    // of every row, or nullptr; read in the first block
  bool first;           // sums start as the bias, not as what they hold
  float* sums;
  int64_t sums_stride;
  int64_t vectors;
};

// panel[c * stride + l] = sources[l][channel + c], as float32, for 16 pixels and up to 16 channels.
struct PrunedBlock {
  const char* const* sources;  // each at channel 0
  DType type;
  int64_t channel, channels;
  float* panel;
  int64_t stride;
};

// to[i] = source[i * step], as float32.
struct PrunedRun {
  const char* source;
  DType type;
  int64_t count, step;
  float* to;
};

// pixels[l][channel + c] = activation(from[c * stride + l]) for `width` of 16 channels of the
// pixels that are not nullptr.
struct PrunedStore {
  const float* from;
  int64_t stride;
  float* const* pixels;  // [16], each at channel 0
  int64_t channel, width;
  Activation activation;
};

// sums[o] = the dot product of output o's entries and x, for `count` outputs from `first` on.
struct PrunedDots {
  const float* x;
  int64_t inputs;
  int64_t first, count;
  const int32_t* starts;  // of every output: its entries begin here
  const int32_t* ends;    // and end here
  int64_t entries;
  const float* values;      // [entries]
  const uint16_t* columns;  // [entries], an input each
  float* sums;
};

// For `pixels` neighbours of a row of an image, all channels c: activation(bias[c] + sum over taps
// t of weights[t][c] * pixel(t)[c]); tap t of pixel p is at x + offsets[t] + p * step, in bytes.
struct PrunedDepthwise {
  const char* x;
  const int64_t* offsets;
  const float* const* weights;
  int64_t taps, step;
  int64_t pixels, channels;
  DType in_type, out_type;
  Activation activation;
  const float* bias;  // nullptr: none
  char* out;
};

struct PrunedIsa {
  const char* name;
  void (*multiply_rows)(const PrunedRows&);
  void (*load_block)(const PrunedBlock&);
  void (*load_run)(const PrunedRun&);
  // to[l * 16 + c] = from[c * stride + l], 16 x 16.
  void (*transpose_block)(const float* from, int64_t stride, float* to);
  void (*store_block)(const PrunedStore&);
  void (*multiply_dots)(const PrunedDots&);
  void (*depthwise)(const PrunedDepthwise&);
};

const PrunedIsa& PrunedPlain();
#if defined(__x86_64__)
const PrunedIsa& PrunedAvx2();
const PrunedIsa& PrunedAvx512();
#elif defined(__aarch64__)
const PrunedIsa& PrunedNeon();
#endif

// The best table that this machine can run.
const PrunedIsa& PrunedIsaInUse();

}  // namespace jaxsparse
