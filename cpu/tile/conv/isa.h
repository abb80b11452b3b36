// The seam between the portable drivers and the units compiled for one instruction set: a table of
// small kernels on float32 rows. A driver gathers and converts; a kernel here multiplies.
#pragma once

#include <cstdint>

#include "contracts/enums.gen.h"
#include "cpu/core/dtype.h"

namespace jaxsparse {

constexpr int kMaxTileRows = 12;
constexpr int kMaxTileVectors = 4;
constexpr int kMaxLanes = 16;

// sums[r][o] = sum over the live taps t and the channels c of rows[t*row_block + r][x_offset + c] *
// weights[t, c, o].
struct ConvTile {
  const float* const* rows;  // [taps][row_block]; a padded tap points at zeros
  int64_t row_block;
  const int32_t* live;  // taps that are not padding for every row
  int64_t live_count;
  int64_t x_offset, depth;
  const float* weights;
  int64_t tap_stride, step;  // floats from tap to tap, from channel to channel
  int64_t lanes;             // outputs that exist, of a partial vector
  float* sums;               // [rows][vectors * lanes of the instruction set]
};

// dkernel[c][o] += sum over pixels p of x[p][x_offset + c] * gy[p][gy_offset + o].
struct DkernelTile {
  const float* const* x;
  const float* const* gy;
  int64_t count, x_offset, gy_offset;
  int64_t lanes;
  float* dkernel;
  int64_t stride;
};

// out[r][o] = activation(sums[r][o] + bias[o] + residual[r][o]) for `width` outputs of `rows`
// pixels.
struct FinishTile {
  const float* sums;
  int64_t sums_stride;
  int64_t rows, width;
  const float* bias;    // nullptr: none
  void* const* pixels;  // [rows], each at channel 0
  int64_t out_offset;   // first channel written
  DType out_type;
  Activation activation;
  const void* const* residual = nullptr;  // as `pixels`, of out_type; nullptr: none
};

using ConvTileFn = void (*)(const ConvTile&);
using DkernelTileFn = void (*)(const DkernelTile&);

// Indexed [vectors][rows]; `vectors` 0 is one partial vector. nullptr where the shape is not built.
struct ConvIsa {
  const char* name;
  int lanes;
  bool wide_file;  // 32 vector registers, not 16
  ConvTileFn conv[kMaxTileVectors + 1][kMaxTileRows + 1];
  ConvTileFn depthwise[kMaxTileVectors + 1][kMaxTileRows + 1];
  DkernelTileFn dkernel[kMaxTileVectors + 1][kMaxTileRows + 1];
  DkernelTileFn depthwise_dkernel[kMaxTileVectors + 1];
  void (*finish)(const FinishTile&);
  void (*to_f32)(DType type, const void* source, int64_t count, float* target);
};

const ConvIsa& MaskedConvPlain();
#if defined(__x86_64__)
const ConvIsa& MaskedConvAvx2();
const ConvIsa& MaskedConvAvx512();
#elif defined(__aarch64__)
const ConvIsa& MaskedConvNeon();
#endif

// The best table that this machine can run.
const ConvIsa& MaskedConvIsa();

// Bytes between the starts of two elements `index` apart.
inline const char* ElementAt(const void* base, int64_t index, DType type) {
  return static_cast<const char*>(base) + index * SizeOf(type);
}

}  // namespace jaxsparse
