// One pass over the words: the rows of a tile are OR-ed, then each step finds the next set bit and
// jumps behind its tile. The work is one OR per word and one count-trailing-zeros per active tile;
// inactive pixels cost nothing more.
#include "cpu/index/tile_index.h"

#include <algorithm>
#include <vector>

namespace jaxsparse::cpu {
namespace {

// The OR of the rows of one tile row: which pixel columns are active in it.
void OrRows(const uint32_t* rows, int64_t count, int64_t words, int64_t width, uint32_t* out) {
  std::copy(rows, rows + words, out);
  for (int64_t y = 1; y < count; ++y) {
    for (int64_t w = 0; w < words; ++w) out[w] |= rows[y * words + w];
  }
  if (words > 0) out[words - 1] = ClipWord(out[words - 1], words - 1, width);
}

// Quotients by a tile width: a shift where it is a power of two.
class TileColumn {
 public:
  explicit TileColumn(int64_t tile_w)
      : tile_w_(static_cast<uint32_t>(tile_w)),
        shift_(__builtin_ctz(tile_w_)),
        is_power_((tile_w_ & (tile_w_ - 1)) == 0) {}

  uint32_t Of(uint32_t x) const { return is_power_ ? x >> shift_ : x / tile_w_; }

 private:
  uint32_t tile_w_;
  int shift_;
  bool is_power_;
};

// Calls visit(j) for every tile column j with a set bit.
template <class Visit>
void ForEachTile(const uint32_t* columns, int64_t words, int64_t tile_w, Visit visit) {
  if (tile_w == 1) {  // nothing to jump over: a step does not wait for the one before it
    for (int64_t w = 0; w < words; ++w) {
      for (uint32_t bits = columns[w]; bits != 0; bits &= bits - 1) {
        visit(32 * w + __builtin_ctz(bits));
      }
    }
    return;
  }
  const TileColumn column(tile_w);
  int64_t next = 0;  // the first pixel column behind the last tile found
  for (int64_t w = 0; w < words; w = std::max(w + 1, next / 32)) {
    uint32_t bits = columns[w];
    if (next > 32 * w) bits &= ~0u << (next - 32 * w);
    while (bits != 0) {
      const int64_t j = column.Of(static_cast<uint32_t>(32 * w) + __builtin_ctz(bits));
      visit(j);
      next = (j + 1) * tile_w;
      if (next >= 32 * (w + 1)) break;
      bits &= ~0u << (next - 32 * w);
    }
  }
}

}  // namespace

int64_t ListTiles(const TiledMask& mask, int64_t capacity, int32_t* ids) {
  if (mask.empty()) {
    std::fill(ids, ids + capacity, -1);
    return 0;
  }
  const int64_t words = mask.words_per_row(), rows = mask.tile_rows(), cols = mask.tile_cols();
  std::vector<uint32_t> columns(words);
  int64_t count = 0;
  for (int64_t row = 0; row < mask.images * rows; ++row) {
    const int64_t image = row / rows, y0 = (row % rows) * mask.tile_h;
    const int64_t y1 = std::min(y0 + mask.tile_h, mask.height);
    const uint32_t* first = mask.words + (image * mask.height + y0) * words;
    OrRows(first, y1 - y0, words, mask.width, columns.data());
    ForEachTile(columns.data(), words, mask.tile_w, [&](int64_t j) {
      if (count < capacity) ids[count] = static_cast<int32_t>(row * cols + j);
      ++count;
    });
  }
  std::fill(ids + std::min(count, capacity), ids + capacity, -1);
  return count;
}

}  // namespace jaxsparse::cpu
