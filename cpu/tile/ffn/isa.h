// The seam between the portable driver of sparse_ffn and the units compiled for one instruction
// set: sums of listed rows of a matrix, and conversions.
#pragma once

#include <cstdint>

#include "cpu/core/dtype.h"

namespace jaxsparse {

constexpr int64_t kFfnMostTogether = 8;

// sums[t * sums_stride + c] += sum over i of values[t * value_stride + i] * w[rows[i] * stride + c]
// for `tokens` of 1 to kFfnMostTogether, and c in [0, columns).
struct FfnRows {
  const int32_t* rows;  // nullptr: row i is i
  int64_t count, tokens;
  const float* values;
  int64_t value_stride;
  const void* w;  // at the first row, at the first column
  DType type;
  int64_t stride, columns;
  float* sums;
  int64_t sums_stride;
  int64_t ahead = 6;  // rows by which `add_rows` asks for w, without a list also past the last
};

struct FfnIsa {
  const char* name;
  void (*add_rows)(const FfnRows&);
  // sums[t * sums_stride + rows[i]] = sum over c in [0, columns) of values[t * value_stride + c] *
  // w[rows[i] * stride + c].
  void (*dot_rows)(const FfnRows&);
  // to[i] = from[i], as float32.
  void (*load)(const void* from, DType type, int64_t count, float* to);
  // to[i] = from[i], rounded.
  void (*store)(const float* from, DType type, int64_t count, void* to);
};

const FfnIsa& FfnPlain();
#if defined(__x86_64__)
const FfnIsa& FfnAvx2();
const FfnIsa& FfnAvx512();
#elif defined(__aarch64__)
const FfnIsa& FfnNeon();
#endif

// The best table that this machine can run.
const FfnIsa& FfnIsaInUse();

}  // namespace jaxsparse
