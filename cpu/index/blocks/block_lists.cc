// One pass over the codes in their order serves both directions: a column's list grows by an entry
// whenever a row lists it, so it ascends.
#include "cpu/index/blocks/block_lists.h"

#include <algorithm>

namespace jaxsparse::cpu {
namespace {

constexpr int32_t kFull = -1, kNone = -2;

int32_t CodeOf(int32_t code) { return code; }
int32_t CodeOf(uint8_t active) { return active != 0 ? kFull : kNone; }

// Appends to list `line`, which has room for `room` entries.
void Append(const BlockLists& lists, int64_t line, int64_t room, int64_t block, int32_t code) {
  const int64_t at = line * room + lists.counts[line]++;
  lists.blocks[at] = static_cast<int32_t>(block);
  lists.slots[at] = code;
}

// What is after the last entry of each list.
void FillRest(const BlockLists& lists, int64_t lines, int64_t room) {
  for (int64_t line = 0; line < lines; ++line) {
    const int64_t first = line * room + lists.counts[line], end = (line + 1) * room;
    if (first == end) continue;
    std::fill(lists.blocks + first, lists.blocks + end, 0);
    std::fill(lists.slots + first, lists.slots + end, kFull);
  }
}

template <class Code>
void ListEach(const Code* codes, int64_t rows, int64_t columns, BlockLists by_row,
              BlockLists by_column) {
  if (rows > 0) std::fill_n(by_row.counts, rows, 0);
  if (columns > 0) std::fill_n(by_column.counts, columns, 0);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const int32_t code = CodeOf(codes[row * columns + column]);
      if (code < kFull) continue;
      Append(by_row, row, columns, column, code);
      Append(by_column, column, rows, row, code);
    }
  }
  FillRest(by_row, rows, columns);
  FillRest(by_column, columns, rows);
}

}  // namespace

void ListBlocks(const int32_t* codes, int64_t rows, int64_t columns, BlockLists by_row,
                BlockLists by_column) {
  ListEach(codes, rows, columns, by_row, by_column);
}

void ListBlocks(const uint8_t* active, int64_t rows, int64_t columns, BlockLists by_row,
                BlockLists by_column) {
  ListEach(active, rows, columns, by_row, by_column);
}

}  // namespace jaxsparse::cpu
