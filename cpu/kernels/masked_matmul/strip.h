// Condensing load of the left operand: the columns that some row of a strip has, side by side,
// wherever they lie.
#pragma once

#include <cstdint>

#include "cpu/core/scratch.h"
#include "cpu/kernels/masked_matmul/args.h"
#include "cpu/tile/conv/isa.h"
#include "cpu/tile/matmul/isa.h"

namespace jaxsparse {

class CondensedStrip {
 public:
  // Takes its workspace, which a null carver only measures.
  CondensedStrip(const MaskedMatmulArgs& args, ScratchCarver& scratch);

  // Loads `count` rows of product `list` into a strip of `height` rows; entries that the mask
  // leaves out are zero.
  void Load(const ConvIsa& isa, int64_t list, const int64_t* rows, int64_t count, int64_t height);

  const float* at() const { return strip_; }
  int64_t size() const { return size_; }                 // columns that were kept
  const int32_t* strip_at() const { return strip_at_; }  // offset of each in the strip
  const int32_t* columns() const { return columns_; }    // which column each is

 private:
  void ListColumns(int64_t list, const int64_t* rows, int64_t count, int64_t height);
  void AddColumns(int64_t first, int64_t last, int64_t block, int64_t height);
  void CopyRow(const float* row, const uint32_t* bits, float* strip, int64_t height) const;

  const MaskedMatmulArgs& args_;
  float* strip_;
  float* row_;  // one row, as float32
  int32_t* strip_at_;
  int32_t* columns_;
  int32_t* blocks_;  // the mask block of each column
  int64_t size_ = 0;
  const uint32_t* listed_ = nullptr;  // the mask row that the lists are of
  int64_t listed_height_ = 0;         // 0: of no single mask row
};

}  // namespace jaxsparse
