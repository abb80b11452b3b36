// Condensing load of the left operand: the columns that some row of a strip has, side by side,
// wherever they lie.
#pragma once

#include <cstdint>

#include "cpu/core/scratch.h"
#include "cpu/kernels/masked_matmul/args.h"
#include "cpu/tile/conv/isa.h"
#include "cpu/tile/matmul/isa.h"

namespace jaxsparse {

// Rows of a product, padded to `height`.
struct RowsOfProduct {
  int64_t list;
  const int64_t* rows;
  int64_t count, height;
};

class CondensedStrip {
 public:
  // Takes its workspace, which a null carver only measures.
  CondensedStrip(const MaskedMatmulArgs& args, int64_t most_depth, ScratchCarver& scratch);

  // Loads the columns [first, first + depth) of some rows, depth <= most_depth; entries that the
  // mask leaves out are zero.
  void Load(const ConvIsa& isa, const RowsOfProduct& rows, int64_t first, int64_t depth);

  const float* at() const { return strip_; }
  int64_t size() const { return size_; }                 // columns that were kept
  const int32_t* strip_at() const { return strip_at_; }  // offset of each in the strip
  const int32_t* columns() const { return columns_; }    // which column of the block each is

 private:
  void ListColumns(const RowsOfProduct& rows, bool alike);
  void AddColumns(int64_t first, int64_t last, int64_t block, int64_t height);
  void CopyRow(const float* row, const uint32_t* bits, float* strip, int64_t height) const;

  const MaskedMatmulArgs& args_;
  float* strip_;
  float* row_;  // a block of one row, as float32
  int32_t* strip_at_;
  int32_t* columns_;
  int32_t* blocks_;                 // the mask block of each column
  int64_t first_ = 0, depth_ = -1;  // the block
  int64_t size_ = 0;
  const uint32_t* listed_ = nullptr;  // the mask row that the lists are of
  int64_t listed_height_ = 0;         // 0: of no single mask row
};

}  // namespace jaxsparse
