// Gather-load of the columns of a strip of scores: up to kChunk keys (or queries, for the gradients
// of keys) from the blocks that a list names, wherever they lie.
#pragma once

#include <cstdint>

#include "cpu/core/scratch.h"
#include "cpu/kernels/sparse_attention/args.h"
#include "cpu/tile/attention/isa.h"
#include "cpu/tile/conv/isa.h"

namespace jaxsparse {

// One head of an array [tokens, heads, depth]; strides in elements.
struct TokenSource {
  const void* at;
  DType type;
  int64_t stride, depth;
};

// Tokens gathered from a source, as float32 rows and, where asked for, as panels of columns.
struct GatheredTokens {
  float* rows;    // [kChunk][step]
  float* panels;  // [kChunk / width][depth][width]
  int64_t step;
};

class ColumnGather {
 public:
  ColumnGather(const MatmulIsa& tiles, const ConvIsa& convert, int64_t width)
      : tiles_(tiles), convert_(convert), width_(width) {}

  // Rows of floats that a gathered token takes.
  int64_t Step(int64_t depth) const;
  // Takes the room for one gathered source.
  GatheredTokens Take(ScratchCarver& carver, int64_t depth) const;

  // Walks the list of row of blocks `row`, of which `row_count` entries exist; `columns` exist of
  // the other side.
  void Start(const BlockLists& lists, const BlockWords& words, int64_t list_row, int64_t row_count,
             int64_t columns);
  // The next columns; false where there are none left.
  bool Next();

  // Of the columns found: how many with those that fill a word of bits, which token each is (-1:
  // none), and the rows' bits, or null where every row keeps every column.
  int64_t count() const { return count_; }
  const int32_t* tokens() const { return tokens_; }
  const float* tokens_as_float() const { return tokens_as_float_; }
  const uint16_t* bits() const { return masked_ ? bits_ : nullptr; }

  // Loads the columns of one source; what no row keeps is zero.
  void Load(const TokenSource& source, const GatheredTokens& to, bool panels) const;

 private:
  bool NextBlock();
  void Append(int64_t first, int64_t count);
  void SetBits(int64_t column, int64_t first, int64_t count);

  const MatmulIsa& tiles_;
  const ConvIsa& convert_;
  int64_t width_;
  const BlockLists* lists_ = nullptr;
  const BlockWords* words_ = nullptr;
  const int32_t *blocks_ = nullptr, *slots_ = nullptr;
  int64_t listed_ = 0, at_ = 0, row_count_ = 0, columns_ = 0;
  int64_t block_first_ = 0, block_done_ = 0, block_size_ = 0, slot_ = -1;  // of the current block
  int64_t count_ = 0;
  bool masked_ = false;
  int32_t tokens_[kChunk];
  alignas(64) float tokens_as_float_[kChunk];
  uint16_t some_[kChunkBits];  // columns that a row keeps
  uint16_t bits_[kMostBlockRows * kChunkBits];
};

}  // namespace jaxsparse
