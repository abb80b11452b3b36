// The lists of a mask of blocks, by rows and by columns, on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxsparse {

// Of each line (a row or a column) of blocks: how many are listed, which, and their codes. A line
// has room for every block.
struct BlockLines {
  int32_t* counts;
  int32_t* blocks;
  int32_t* slots;
};

// `images` independent masks of rows x columns blocks: a code of -1 or more lists its block, or a
// byte of 1 lists it as full (code -1).
struct BlockListsArgs {
  const int32_t* codes;   // [images, rows, columns]; of ListBlocks
  const uint8_t* active;  // the same; of ListActive
  int64_t images, rows, columns;
  BlockLines by_row, by_column;
};

// One launch. What is after the last entry of a list stays as it is.
cudaError_t ListBlocks(const BlockListsArgs& args, cudaStream_t stream);
cudaError_t ListActive(const BlockListsArgs& args, cudaStream_t stream);

// Once per device, before the first launch and outside any capture.
cudaError_t PrepareListBlocks();
cudaError_t PrepareListActive();

}  // namespace jaxsparse
