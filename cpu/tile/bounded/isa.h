// One saturated layer y = min(max(W x + b, 0), upper) on a tile of images, as the units compiled
// for one instruction set see it. No FFI types.
#pragma once

#include <cstdint>

namespace jaxsparse {

constexpr int64_t kBoundedBlock = 16;  // images that a tile is a multiple of

constexpr int64_t kBundle = 16;  // rows of a bundle

// Units, each a multiple of four entries (split entries fill up): a unit is a row, or a bundle of
// rows that have the same inputs.
struct BoundedLayer {
  int64_t n_in, distinct, entries;
  const int32_t* starts;  // [units + 1]
  const void* indices;    // uint16 or int32 [entries]
  bool wide;              // int32
  bool bundled;           // weights is [entries][kBundle], otherwise [entries]
  const float* weights;
  const float* bias;  // [distinct]
  float upper;
};

// out[o][i] of `images` columns; the three rows say what each column holds: its least and largest
// value, and a `taint` that is zero when no value was NaN.
struct BoundedTile {
  BoundedLayer layer;
  const float* in;
  int64_t in_stride;
  float* out;
  int64_t out_stride;
  int64_t images;  // a multiple of kBoundedBlock
  float* lowest;   // [images] each
  float* highest;
  float* taint;
};

struct BoundedIsa {
  const char* name;
  void (*multiply)(const BoundedTile&);
};

const BoundedIsa& BoundedPlain();
#if defined(__x86_64__)
const BoundedIsa& BoundedAvx2();
const BoundedIsa& BoundedAvx512();
#elif defined(__aarch64__)
const BoundedIsa& BoundedNeon();
#endif

// The best that this machine can run.
const BoundedIsa& BoundedIsaOfMachine();

}  // namespace jaxsparse
