// What the handler hands to the CPU masked product. No FFI headers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/core/dtype.h"

namespace jaxsparse {

// Which blocks of a matrix count: one bit a block of `row_size` x `col_size` entries.
struct BlockBits {
  const uint32_t* words;  // [lists, rows, row_words], nullptr: every block
  int64_t lists;          // 1: the same for every matrix
  int64_t rows, row_words;
  int64_t row_size, col_size;

  bool all() const { return words == nullptr; }
  // The bits of the blocks that hold row `row` of matrix `list`.
  const uint32_t* RowBits(int64_t list, int64_t row) const {
    return words + ((lists == 1 ? 0 : list) * rows + row / row_size) * row_words;
  }
  static bool Has(const uint32_t* row_bits, int64_t block) {
    return (row_bits[block / 32] >> (block % 32) & 1u) != 0;
  }
  // Whether a block over the columns [first, last) is set.
  bool HasAny(const uint32_t* row_bits, int64_t first, int64_t last) const {
    if (first >= last) return false;
    for (int64_t block = first / col_size; block <= (last - 1) / col_size; ++block) {
      if (block % 32 == 0 && row_bits[block / 32] == 0) {
        block += 31;
      } else if (Has(row_bits, block)) {
        return true;
      }
    }
    return false;
  }
  // Zeroes the entries of unset blocks in `values`, the columns [first, last) of a row.
  void Erase(const uint32_t* row_bits, int64_t first, int64_t last, float* values) const {
    int64_t block = first / col_size;
    for (int64_t column = first; column < last; ++block) {
      const int64_t end = std::min((block + 1) * col_size, last);
      if (!Has(row_bits, block)) std::fill(values + column - first, values + end - first, 0.0f);
      column = end;
    }
  }
};

// out[l] = out_bits * ((a_bits * a[l]) @ (b_bits * b[l])), entry by entry where bits stand for
// their blocks.
struct MaskedMatmulArgs {
  int64_t lists, rows, depth, columns;
  int64_t a_lists, b_lists;  // 1: shared by every product
  BlockBits a_bits, b_bits, out_bits;
  DType in_type, out_type;
  int64_t variant;
  const void* a;  // [a_lists, rows, depth]
  const void* b;  // [b_lists, depth, columns]
  void* out;      // [lists, rows, columns]
  void* scratch;
  int64_t scratch_bytes;
};

}  // namespace jaxsparse
