// The seam between attention's drivers and the units compiled for one instruction set: what is done
// to a strip of scores between its two products (layout: cpu/tile/matmul/isa.h).
#pragma once

#include <cstdint>

#include "cpu/tile/matmul/isa.h"

namespace jaxsparse {

// Keys or queries that are gathered together: the columns of a strip of scores.
constexpr int64_t kChunk = 128;
// Columns that one word of bits stands for.
constexpr int64_t kBitColumns = 16;
constexpr int64_t kChunkBits = kChunk / kBitColumns;

// A strip of `height` rows, of which the first `rows` count; `columns` is a multiple of
// kBitColumns.
struct StripSize {
  int64_t rows, height, columns;
};

// From products to scores: cap * tanh(score) with a cap, for the products come divided by it; +
// slope * (column_at - row_at) + added; -inf where a bit is unset.
struct ScoreTile {
  StripSize size;
  float* scores;
  float cap;    // 0: none
  float* bend;  // with a cap: where 1 - tanh^2 goes, 0 where a bit is unset; may be null
  float slope;  // 0: none
  const float* row_at;
  const float* column_at;  // [columns]
  const float* added;      // a strip, or null
  const uint16_t* bits;    // [rows][kChunkBits]; null: all are set
};

// Scores become exp(score - top), with `top` their running maximum: `total` and `shrink` (of what
// was summed under the former maximum) are a row's.
struct SoftmaxTile {
  StripSize size;
  float* scores;
  float* top;
  float* total;
  float* shrink;
};

// Scores become probabilities p = exp(score - lse), and `slopes`, which come as products of the
// cotangent and the values, p * (slopes - delta) * bend. `lse` and `delta` are of rows, or of
// columns.
struct GradTile {
  StripSize size;
  float* scores;
  float* slopes;
  const float* bend;  // may be null
  const float* lse;
  const float* delta;
  bool by_column;
  const uint16_t* bits;  // as above
};

struct AttentionIsa {
  int lanes;
  void (*score)(const ScoreTile&);
  void (*softmax)(const SoftmaxTile&);
  void (*gradient)(const GradTile&);
  // to[r * to_step + c] = from[r * width + c] for c < width, a multiple of the lanes.
  void (*copy)(const float* from, int64_t rows, int64_t width, float* to, int64_t to_step);
  // The same, where what is there stays, times factor[r] (null: 1).
  void (*accumulate)(const float* from, int64_t rows, int64_t width, const float* factor, float* to,
                     int64_t to_step);
  float (*dot)(const float* a, const float* b, int64_t count);
};

const AttentionIsa& AttentionPlain();
#if defined(__x86_64__)
const AttentionIsa& AttentionAvx2();
const AttentionIsa& AttentionAvx512();
#elif defined(__aarch64__)
const AttentionIsa& AttentionNeon();
#endif

// The best table that this machine can run.
const AttentionIsa& AttentionTiles();

}  // namespace jaxsparse
