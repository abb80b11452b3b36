#include "cpu/kernels/masked_matmul/strip.h"

#include <algorithm>
#include <cstring>

#include "cpu/tile/matmul/strip.h"

namespace jaxsparse {

CondensedStrip::CondensedStrip(const MaskedMatmulArgs& args, int64_t most_depth,
                               ScratchCarver& scratch)
    : args_(args),
      strip_(scratch.Take<float>(StripFloats(kMaxProductRows, most_depth))),
      row_(scratch.Take<float>(most_depth)),
      strip_at_(scratch.Take<int32_t>(most_depth)),
      columns_(scratch.Take<int32_t>(most_depth)),
      blocks_(scratch.Take<int32_t>(most_depth)) {}

void CondensedStrip::Load(const ConvIsa& isa, const RowsOfProduct& rows, int64_t first,
                          int64_t depth) {
  if (first != first_ || depth != depth_) listed_height_ = 0;
  first_ = first;
  depth_ = depth;
  const BlockBits& bits = args_.a_bits;
  // Strips of the same mask row, or without a mask, have the same columns.
  const bool alike =
      bits.all() || rows.rows[0] / bits.row_size == rows.rows[rows.count - 1] / bits.row_size;
  ListColumns(rows, alike);
  const int64_t matrix = (args_.a_lists == 1 ? 0 : rows.list) * args_.rows;
  for (int64_t r = 0; r < rows.height; ++r) {
    float* strip = strip_ + r * kStripBlock;
    if (r >= rows.count) {
      for (int64_t p = 0; p < size_; p += kStripBlock, strip += rows.height * kStripBlock) {
        std::fill(strip, strip + std::min(kStripBlock, size_ - p), 0.0f);
      }
      continue;
    }
    const int64_t at = (matrix + rows.rows[r]) * args_.depth + first;
    const void* source = ElementAt(args_.a, at, args_.in_type);
    const float* row = static_cast<const float*>(source);
    if (args_.in_type != DType::kF32) {
      isa.to_f32(args_.in_type, source, depth, row_);
      row = row_;
    }
    const uint32_t* row_bits = alike ? nullptr : bits.RowBits(rows.list, rows.rows[r]);
    CopyRow(row, row_bits, strip, rows.height);
  }
}

void CondensedStrip::ListColumns(const RowsOfProduct& rows, bool alike) {
  const BlockBits& bits = args_.a_bits;
  const uint32_t* source = bits.all() ? nullptr : bits.RowBits(rows.list, rows.rows[0]);
  if (alike && listed_height_ == rows.height && listed_ == source) return;
  listed_height_ = alike ? rows.height : 0;
  listed_ = source;
  size_ = 0;
  if (bits.all()) return AddColumns(0, depth_, 0, rows.height);
  if (depth_ == 0) return;
  const int64_t first_block = first_ / bits.col_size;
  const int64_t last_block = (first_ + depth_ - 1) / bits.col_size;
  for (int64_t w = first_block / 32; w <= last_block / 32; ++w) {
    uint32_t word = 0;
    for (int64_t r = 0; r < rows.count; ++r) word |= bits.RowBits(rows.list, rows.rows[r])[w];
    if (w == first_block / 32) word &= ~0u << first_block % 32;
    if (w == last_block / 32) word &= ~0u >> (31 - last_block % 32);
    for (; word != 0; word &= word - 1) {
      const int64_t block = w * 32 + __builtin_ctz(word);
      const int64_t begin = block * bits.col_size - first_, end = begin + bits.col_size;
      AddColumns(std::max<int64_t>(begin, 0), std::min(end, depth_), block, rows.height);
    }
  }
}

void CondensedStrip::AddColumns(int64_t first, int64_t last, int64_t block, int64_t height) {
  for (int64_t column = first; column < last; ++column, ++size_) {
    const int64_t at = size_ / kStripBlock * height * kStripBlock + size_ % kStripBlock;
    columns_[size_] = static_cast<int32_t>(column);
    blocks_[size_] = static_cast<int32_t>(block);
    strip_at_[size_] = static_cast<int32_t>(at);
  }
}

void CondensedStrip::CopyRow(const float* row, const uint32_t* bits, float* strip,
                             int64_t height) const {
  for (int64_t p = 0; p < size_; p += kStripBlock, strip += height * kStripBlock) {
    const int64_t count = std::min(kStripBlock, size_ - p);
    const int32_t* columns = columns_ + p;
    if (columns[count - 1] - columns[0] == count - 1 && bits == nullptr) {
      std::memcpy(strip, row + columns[0], static_cast<size_t>(count) * sizeof(float));
    } else if (bits == nullptr) {
      for (int64_t i = 0; i < count; ++i) strip[i] = row[columns[i]];
    } else {
      for (int64_t i = 0; i < count; ++i) {
        strip[i] = BlockBits::Has(bits, blocks_[p + i]) ? row[columns[i]] : 0.0f;
      }
    }
  }
}

}  // namespace jaxsparse
