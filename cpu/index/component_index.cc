// Labelling by runs: a row's maximal runs of set bits are the nodes of a union-find, joined to the
// runs of the row above that they touch (diagonals count). Runs come in raster order, so the
// smallest run of a component is its first: its row is the top of the bounding box. A second pass
// over the runs lists each tile when it is first touched; as rows ascend, one "last tile row seen"
// per tile column of a component tells whether it was.
#include "cpu/index/component_index.h"

#include <algorithm>
#include <vector>

namespace jaxsparse::cpu {
namespace {

struct Run {
  int64_t row, begin, end;  // pixels [begin, end) of this row
  int64_t parent;           // union-find, by index of the run
  int64_t left, right;      // at a root: the component's pixel columns [left, right)
  int64_t seen;             // at a root: where its tile columns begin in `last_seen`
};

class Components {
 public:
  explicit Components(const TiledMask& mask) : mask_(mask) {}

  // Labels image `image`: afterwards every run's parent is its root and roots hold the bounds.
  void Label(int64_t image) {
    runs_.clear();
    int64_t above = 0;
    for (int64_t y = 0; y < mask_.height; ++y) {
      const int64_t begin = static_cast<int64_t>(runs_.size());
      AppendRuns(mask_.words + (image * mask_.height + y) * mask_.words_per_row(), y);
      JoinRows(above, begin);
      above = begin;
    }
    Bound();
  }

  // Calls visit(y0, x0) for each tile, in the raster order of its first pixel.
  template <class Visit>
  void ForEachTile(Visit visit) {
    for (const Run& run : runs_) {
      const Run& root = runs_[run.parent];
      const int64_t i = (run.row - root.row) / mask_.tile_h;
      const int64_t last = (run.end - 1 - root.left) / mask_.tile_w;
      for (int64_t j = (run.begin - root.left) / mask_.tile_w; j <= last; ++j) {
        if (last_seen_[root.seen + j] == i) continue;
        last_seen_[root.seen + j] = i;
        visit(root.row + i * mask_.tile_h, root.left + j * mask_.tile_w);
      }
    }
  }

 private:
  void AppendRuns(const uint32_t* words, int64_t y) {
    const int64_t row_begin = static_cast<int64_t>(runs_.size());
    for (int64_t w = 0; w < mask_.words_per_row(); ++w) {
      uint32_t bits = ClipWord(words[w], w, mask_.width);
      while (bits != 0) {
        const int begin = __builtin_ctz(bits);
        const uint32_t rest =
            ~(bits >> begin);  // zero below the run's end, if it ends in this word
        const int end = rest == 0 ? 32 : std::min(32, begin + __builtin_ctz(rest));
        const int64_t x = 32 * w + begin;
        if (static_cast<int64_t>(runs_.size()) > row_begin && runs_.back().end == x) {
          runs_.back().end = 32 * w + end;
        } else {
          const int64_t self = static_cast<int64_t>(runs_.size());
          runs_.push_back({y, x, 32 * w + end, self, 0, 0, 0});
        }
        bits = end == 32 ? 0 : bits & (~0u << end);
      }
    }
  }

  // Joins the runs [above, begin) of the row above with the runs [begin, size) of this row.
  void JoinRows(int64_t above, int64_t begin) {
    const int64_t size = static_cast<int64_t>(runs_.size());
    for (int64_t a = above, b = begin; a < begin && b < size;) {
      if (runs_[a].begin <= runs_[b].end && runs_[b].begin <= runs_[a].end) Union(a, b);
      runs_[a].end < runs_[b].end ? ++a : ++b;
    }
  }

  int64_t Find(int64_t i) {
    while (runs_[i].parent != i) i = runs_[i].parent = runs_[runs_[i].parent].parent;
    return i;
  }

  void Union(int64_t a, int64_t b) {
    a = Find(a);
    b = Find(b);
    runs_[std::max(a, b)].parent = std::min(a, b);
  }

  void Bound() {
    for (int64_t i = 0; i < static_cast<int64_t>(runs_.size()); ++i) {
      Run& run = runs_[i];
      run.parent = Find(i);
      Run& root = runs_[run.parent];
      root.left = run.parent == i ? run.begin : std::min(root.left, run.begin);
      root.right = run.parent == i ? run.end : std::max(root.right, run.end);
    }
    int64_t columns = 0;
    for (int64_t i = 0; i < static_cast<int64_t>(runs_.size()); ++i) {
      if (runs_[i].parent != i) continue;
      runs_[i].seen = columns;
      columns += (runs_[i].right - runs_[i].left + mask_.tile_w - 1) / mask_.tile_w;
    }
    last_seen_.assign(columns, -1);
  }

  const TiledMask& mask_;
  std::vector<Run> runs_;
  std::vector<int64_t> last_seen_;
};

}  // namespace

int64_t ListComponentTiles(const TiledMask& mask, int64_t capacity, int32_t* origins) {
  Components components(mask);
  int64_t count = 0;
  for (int64_t image = 0; image < mask.images && !mask.empty(); ++image) {
    components.Label(image);
    components.ForEachTile([&](int64_t y0, int64_t x0) {
      if (count < capacity) {
        origins[3 * count] = static_cast<int32_t>(image);
        origins[3 * count + 1] = static_cast<int32_t>(y0);
        origins[3 * count + 2] = static_cast<int32_t>(x0);
      }
      ++count;
    });
  }
  std::fill(origins + 3 * std::min(count, capacity), origins + 3 * capacity, -1);
  return count;
}

}  // namespace jaxsparse::cpu
