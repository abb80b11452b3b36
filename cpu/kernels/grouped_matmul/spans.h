// Group sizes as spans of sorted rows, each cut into chunks of about equal height: the items of
// work.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/core/scratch.h"

namespace jaxsparse {

struct RowChunk {
  int64_t group, first, count;
};

// A negative size counts as zero; what reaches past the last sorted row is cut off.
class GroupSpans {
 public:
  GroupSpans(int64_t groups, ScratchCarver& scratch)
      : groups_(groups),
        first_(scratch.Take<int64_t>(groups + 1)),
        chunks_(scratch.Take<int64_t>(groups + 1)) {}

  // Chunks hold at most `height` rows, a multiple of `unit`.
  void Build(const int32_t* sizes, int64_t sorted_rows, int64_t height, int64_t unit) {
    height_ = height;
    unit_ = unit;
    int64_t row = 0, chunks = 0;
    for (int64_t g = 0; g < groups_; ++g) {
      first_[g] = row;
      chunks_[g] = chunks;
      row = std::min(row + std::max<int64_t>(sizes[g], 0), sorted_rows);
      chunks += (row - first_[g] + height - 1) / height;
    }
    first_[groups_] = row;
    chunks_[groups_] = chunks;
  }

  int64_t rows() const { return first_[groups_]; }
  int64_t first(int64_t group) const { return first_[group]; }
  int64_t size(int64_t group) const { return first_[group + 1] - first_[group]; }
  int64_t chunks() const { return chunks_[groups_]; }

  RowChunk Chunk(int64_t index) const {
    const int64_t group = std::upper_bound(chunks_, chunks_ + groups_ + 1, index) - chunks_ - 1;
    const int64_t parts = chunks_[group + 1] - chunks_[group], part = index - chunks_[group];
    const int64_t units = (size(group) + unit_ - 1) / unit_;
    const int64_t begin = units * part / parts * unit_, end = units * (part + 1) / parts * unit_;
    const int64_t last = std::min(end, size(group));
    return {group, first_[group] + begin, last - begin};
  }

 private:
  int64_t groups_;
  int64_t* first_;   // [groups + 1]
  int64_t* chunks_;  // [groups + 1]: chunks of the groups before
  int64_t height_ = 1, unit_ = 1;
};

}  // namespace jaxsparse
