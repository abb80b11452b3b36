// A feed-forward network on many tokens: lists of what is not zero, and the products that the lists
// need. 16-bit elements, on tensor cores, from compute capability 8.0 on.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/core/dtype.h"

namespace jaxsparse {

// A list belongs to eight tokens and to 512 rows of the last matrix, a chunk: it names the rows
// that one of the tokens needs, in blocks of 16.
inline constexpr int kListTokens = 8;
inline constexpr int kListChunk = 512;
inline constexpr int kListBlock = 16;
inline constexpr int kListBlocks = 8;
inline constexpr int kListMost = kListBlock * kListBlocks;  // rows that a list has room for

struct ListArgs {
  const void* a;  // [rows, depth]
  uint16_t* ids;  // [groups, chunks, 128]
  void* values;   // [groups, chunks, 1024]
  int* counts;    // [groups, chunks, 2]: rows listed, entries of a that are not zero
  int rows, depth;
  DType type;
  bool rectified, squared;
};

struct ListedArgs {
  const uint16_t* ids;
  const void* values;
  const int* counts;
  const void* w_down;  // [hidden, outputs]
  const void* x;       // [tokens, depth]; nullptr: the values are multiplied by nothing
  const void* w_up;    // [hidden, depth]
  void* y;             // [tokens, outputs]
  void* products;      // [groups, chunks, 1024]: values times x @ w_up^T; without x nothing
  int tokens, depth, hidden, outputs;
  DType type;
};

cudaError_t LaunchLists(const ListArgs& args, cudaStream_t stream);

// Whether the current device has the 128 KiB of shared memory that a block needs.
bool ListedFits();

// One launch, or two with a gate, where ListedFits.
cudaError_t LaunchListed(const ListedArgs& args, cudaStream_t stream);

// Once per device, before the first launch and outside any capture.
cudaError_t PrepareLists();
cudaError_t PrepareListed();

}  // namespace jaxsparse
