#include "cpu/kernels/sparse_attention/columns.h"

#include <algorithm>
#include <cstring>

#include "cpu/tile/matmul/strip.h"

namespace jaxsparse {

int64_t ColumnGather::Step(int64_t depth) const {
  return RoundUp(depth, std::max<int64_t>(width_, kBitColumns));
}

GatheredTokens ColumnGather::Take(ScratchCarver& carver, int64_t depth) const {
  GatheredTokens made;
  made.step = Step(depth);
  made.rows = carver.Take<float>(Checked(kChunk) * made.step);
  made.panels = carver.Take<float>(Checked(kChunk) * depth);
  return made;
}

void ColumnGather::Start(const BlockLists& lists, const BlockWords& words, int64_t list_row,
                         int64_t row_count, int64_t columns) {
  lists_ = &lists;
  words_ = &words;
  blocks_ = lists.blocks + list_row * lists.columns;
  slots_ = lists.slots + list_row * lists.columns;
  listed_ = std::clamp<int64_t>(lists.counts[list_row], 0, lists.columns);
  row_count_ = row_count;
  columns_ = columns;
  at_ = block_done_ = block_size_ = 0;
}

// The next entry of the list that is in range; others count as not listed.
bool ColumnGather::NextBlock() {
  for (; at_ < listed_; ++at_) {
    const int64_t block = blocks_[at_], slot = slots_[at_];
    if (block < 0 || block >= lists_->columns || slot < -1 || slot >= words_->slots) continue;
    block_first_ = block * lists_->column_block;
    block_size_ = std::min(lists_->column_block, columns_ - block_first_);
    block_done_ = 0;
    slot_ = slot;
    ++at_;
    return true;
  }
  return false;
}

bool ColumnGather::Next() {
  count_ = 0;
  masked_ = false;
  while (count_ < kChunk) {
    if (block_done_ == block_size_ && !NextBlock()) break;
    const int64_t count = std::min(block_size_ - block_done_, kChunk - count_);
    Append(block_done_, count);
    block_done_ += count;
  }
  if (!masked_) return count_ > 0;
  std::fill(some_, some_ + kChunkBits, uint16_t{0});
  for (int64_t r = 0; r < row_count_; ++r) {
    for (int64_t g = 0; g < kChunkBits; ++g) some_[g] |= bits_[r * kChunkBits + g];
  }
  return count_ > 0;
}

// Adds entries [first, first + count) of the current block; `first` is a multiple of kBitColumns.
void ColumnGather::Append(int64_t first, int64_t count) {
  const bool partial = slot_ >= 0 || count % kBitColumns != 0;
  if (partial && !masked_) {
    masked_ = true;
    std::fill(bits_, bits_ + row_count_ * kChunkBits, uint16_t{0xffff});
  }
  const int64_t end = count_ + RoundUp(count, kBitColumns);
  for (int64_t c = count_; c < end; ++c) {
    const int64_t entry = c - count_;
    tokens_[c] = entry < count ? static_cast<int32_t>(block_first_ + first + entry) : -1;
    tokens_as_float_[c] = static_cast<float>(tokens_[c]);
  }
  if (partial) SetBits(count_, first, count);
  count_ = end;
}

void ColumnGather::SetBits(int64_t column, int64_t first, int64_t count) {
  for (int64_t c = 0; c < count; c += kBitColumns) {
    const int64_t left = std::min(count - c, kBitColumns), from = first + c;
    const auto inside = static_cast<uint16_t>((1u << left) - 1u);
    uint16_t* bits = bits_ + (column + c) / kBitColumns;
    if (slot_ < 0) {
      for (int64_t r = 0; r < row_count_; ++r) bits[r * kChunkBits] = inside;
    } else if (!lists_->turned) {
      for (int64_t r = 0; r < row_count_; ++r) {
        const uint32_t word = words_->Row(slot_, r)[from / 32];
        bits[r * kChunkBits] = static_cast<uint16_t>((word >> (from % 32)) & inside);
      }
    } else {
      for (int64_t r = 0; r < row_count_; ++r) bits[r * kChunkBits] = 0;
      for (int64_t i = 0; i < left; ++i) {
        const uint32_t* row = words_->Row(slot_, from + i);
        for (int64_t r = 0; r < row_count_; ++r) {
          bits[r * kChunkBits] |= static_cast<uint16_t>((row[r / 32] >> (r % 32) & 1u) << i);
        }
      }
    }
  }
}

void ColumnGather::Load(const TokenSource& source, const GatheredTokens& to, bool panels) const {
  const int64_t rows = RoundUp(count_, std::max<int64_t>(width_, kBitColumns));
  for (int64_t c = 0; c < rows; ++c) {
    float* row = to.rows + c * to.step;
    const bool kept = c < count_ && tokens_[c] >= 0 &&
                      (!masked_ || (some_[c / kBitColumns] >> (c % kBitColumns) & 1) != 0);
    const int64_t filled = kept ? source.depth : 0;
    if (kept) {
      const void* from = ElementAt(source.at, tokens_[c] * source.stride, source.type);
      convert_.to_f32(source.type, from, source.depth, row);
    }
    std::fill(row + filled, row + to.step, 0.0f);
  }
  if (!panels) return;
  for (int64_t c = 0; c < rows; c += width_) {
    tiles_.transpose({DType::kF32, to.rows + c * to.step, to.step, width_, source.depth,
                      to.panels + c * source.depth, width_});
  }
}

}  // namespace jaxsparse
