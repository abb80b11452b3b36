// Host-side description of one block-sparse attention and of its gradient: what a handler hands to
// a launcher. No FFI and no device headers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/core/dtype.h"
#include "cuda/core/precision.h"

namespace jaxsparse {

// The listed blocks of one direction. Forward and dq: rows are blocks of queries, columns blocks of
// keys; dk and dv: the transposed lists. Leading axes [batch or 1, heads or 1]. The kernels do not
// trust the values: a count is clamped to [0, columns], a block outside of [0, columns) and a slot
// outside of [-1, word_rows) are left out.
struct AttentionMask {
  const int* counts;      // [batch, heads, rows]
  const int* blocks;      // [batch, heads, rows, columns]: what a row lists, ascending
  const int* slots;       // the same shape: -1 where every position attends, or a row of words
  const uint32_t* words;  // [word_rows, block_q, ceil(block_kv / 32)] in both directions
  int64_t word_rows;
  int batch, heads;  // 1: shared
  int rows, columns;
  int block_q, block_kv;
};

struct AttentionArgs {
  const void* q;            // [batch, q_len, heads, depth]
  const void* k;            // [batch, kv_len, kv_heads, depth]
  const void* v;            // [batch, kv_len, kv_heads, v_depth]
  void* out;                // [batch, q_len, heads, v_depth]
  float* lse;               // [batch, heads, q_len], natural logarithm; may be nullptr
  const float* slopes;      // [heads]; may be nullptr
  const void* bias;         // may be nullptr
  int64_t bias_strides[4];  // [b, n, t, s] in elements, 0 where broadcast
  bool bias_f32;            // else of q's dtype
  Precision precision;
  int batch, q_len, kv_len, heads, kv_heads, depth, v_depth;
  float scale, soft_cap;  // soft_cap 0: none
  AttentionMask mask;
};

struct AttentionGradArgs {
  AttentionArgs forward;  // out and lse are what the forward call wrote: read only
  const void* gout;       // [batch, q_len, heads, v_depth]
  const float* glse;      // [batch, heads, q_len]; may be nullptr: zeros
  float* delta;           // scratch, [batch, heads, q_len]: rowsum(gout * out) - glse
  void *dq, *dk, *dv;     // as q, k, v
  AttentionMask transposed;
};

}  // namespace jaxsparse
