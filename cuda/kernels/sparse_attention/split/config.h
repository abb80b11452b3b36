// What the launcher and the kernels of split attention share.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/kernels/sparse_attention/args.h"

namespace jaxsparse {

// There is a split for each so many strips of 16 keys, so that its partial result is a small part
// of the bytes that it reads.
inline constexpr int kSplitStrips = 16;

// One call. A *list* is a batch entry with the query heads that read one list of one head of keys:
// `pack` of them. Its rows are `pack` times `q_len`, those of a head together.
struct SplitArgs {
  AttentionArgs attention;
  int pack, lists, tiles;  // lists of a batch entry; tiles of rows of a list
  int splits;              // of a list at most
  float* partial;          // [splits, batch, heads, q_len, v_depth]; nullptr where splits is 1
  float* partial_lse;      // [splits, batch, heads, q_len]
};

struct SplitKernel {
  int columns, rows, threads;  // the greatest depth of v, and the rows of a tile
  int (*shared_bytes)(int depth, int v_depth);
  void (*entry)(SplitArgs);
};

struct SplitKernels {
  const SplitKernel* kernels;
  int count;

  const SplitKernel* begin() const { return kernels; }
  const SplitKernel* end() const { return kernels + count; }
};

// The first that takes a problem is the one that runs.
SplitKernels SplitKernelsBF16();
SplitKernels SplitKernelsF16();

}  // namespace jaxsparse
