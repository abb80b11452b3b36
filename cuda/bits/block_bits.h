// A mask of blocks, packed.
#pragma once

#include <cstdint>

namespace jaxsparse {

// Which blocks of a matrix count: one bit a block of `row_size` x `col_size` entries.
struct BlockBits {
  const uint32_t* words;    // [lists, rows, row_words], nullptr: every block
  int64_t lists;            // 1: the same for every matrix
  int64_t rows, row_words;  // rows of blocks, words of each
  int64_t row_size, col_size;
  // `words` are bools, `columns` bytes a row: for a mask on `a` of boxes, whose index alone asks.
  bool is_bools = false;
  int64_t columns = 0;
};

}  // namespace jaxsparse
