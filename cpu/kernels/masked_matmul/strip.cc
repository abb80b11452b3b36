#include "cpu/kernels/masked_matmul/strip.h"

#include <algorithm>
#include <cstring>

#include "cpu/tile/matmul/strip.h"

namespace jaxsparse {

CondensedStrip::CondensedStrip(const MaskedMatmulArgs& args, ScratchCarver& scratch)
    : args_(args),
      strip_(scratch.Take<float>(StripFloats(kMaxProductRows, args.depth))),
      row_(scratch.Take<float>(args.depth)),
      strip_at_(scratch.Take<int32_t>(args.depth)),
      columns_(scratch.Take<int32_t>(args.depth)),
      blocks_(scratch.Take<int32_t>(args.depth)) {}

void CondensedStrip::Load(const ConvIsa& isa, int64_t list, const int64_t* rows, int64_t count,
                          int64_t height) {
  ListColumns(list, rows, count, height);
  const BlockBits& bits = args_.a_bits;
  const bool alike = bits.all() || rows[0] / bits.row_size == rows[count - 1] / bits.row_size;
  const int64_t matrix = (args_.a_lists == 1 ? 0 : list) * args_.rows;
  for (int64_t r = 0; r < height; ++r) {
    float* strip = strip_ + r * kStripBlock;
    if (r >= count) {
      for (int64_t p = 0; p < size_; p += kStripBlock, strip += height * kStripBlock) {
        std::fill(strip, strip + std::min(kStripBlock, size_ - p), 0.0f);
      }
      continue;
    }
    const void* source = ElementAt(args_.a, (matrix + rows[r]) * args_.depth, args_.in_type);
    const float* row = static_cast<const float*>(source);
    if (args_.in_type != DType::kF32) {
      isa.to_f32(args_.in_type, source, args_.depth, row_);
      row = row_;
    }
    CopyRow(row, alike ? nullptr : args_.a_bits.RowBits(list, rows[r]), strip, height);
  }
}

void CondensedStrip::ListColumns(int64_t list, const int64_t* rows, int64_t count, int64_t height) {
  const BlockBits& bits = args_.a_bits;
  // Strips of the same mask row, or without a mask, have the same columns.
  const bool alike = bits.all() || rows[0] / bits.row_size == rows[count - 1] / bits.row_size;
  const uint32_t* source = bits.all() ? nullptr : bits.RowBits(list, rows[0]);
  if (alike && listed_height_ == height && listed_ == source) return;
  listed_height_ = alike ? height : 0;
  listed_ = source;
  size_ = 0;
  if (bits.all()) return AddColumns(0, args_.depth, 0, height);
  for (int64_t w = 0; w < bits.row_words; ++w) {
    uint32_t word = 0;
    for (int64_t r = 0; r < count; ++r) word |= bits.RowBits(list, rows[r])[w];
    for (; word != 0; word &= word - 1) {
      const int64_t block = w * 32 + __builtin_ctz(word);
      const int64_t first = block * bits.col_size;
      AddColumns(first, std::min(first + bits.col_size, args_.depth), block, height);
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
