// The lists of a mask of blocks, by rows and by columns.
#pragma once

#include <cstdint>

namespace jaxsparse::cpu {

// Of each line (a row or a column) of blocks: how many are listed, which, and their codes. A line
// has room for every block.
struct BlockLists {
  int32_t* counts;
  int32_t* blocks;
  int32_t* slots;
};

// From codes int32[rows, columns], of which -1 or more lists a block, to both directions; block 0
// and slot -1 after the last. Of bytes, those that are set list a block with code -1.
void ListBlocks(const int32_t* codes, int64_t rows, int64_t columns, BlockLists by_row,
                BlockLists by_column);
void ListBlocks(const uint8_t* active, int64_t rows, int64_t columns, BlockLists by_row,
                BlockLists by_column);

}  // namespace jaxsparse::cpu
