#include "cpu/tile/matmul/panels.h"

#include <algorithm>

namespace jaxsparse {
namespace {

constexpr int64_t kGroupFloats = 256 << 10;
constexpr int64_t kMaxGroupColumns = 512;
constexpr int64_t kLineBytes = 64, kRowsAhead = 8;

}  // namespace

int64_t PanelGroup::GroupColumns(int64_t depth) {
  const int64_t fits =
      kGroupFloats / std::max<int64_t>(depth, 1) / kMaxPanelFloats * kMaxPanelFloats;
  return std::clamp(fits, kMaxPanelFloats, kMaxGroupColumns);
}

void PanelGroup::Load(int64_t first, int64_t last, int vectors) {
  Cut(first, last, vectors);
  if (!source_.transposed) return CopyRows();
  for (const ColumnPanel& panel : *this) {
    tiles_.transpose({source_.type,
                      ElementAt(source_.at, panel.first * source_.stride, source_.type),
                      source_.stride, panel.width, source_.depth, Storage(panel), panel.step});
  }
}

// A partial vector is padded to a whole one.
void PanelGroup::Cut(int64_t first, int64_t last, int vectors) {
  count_ = 0;
  const float* at = storage_;
  while (first < last) {
    const int64_t whole = (last - first) / isa_.lanes;
    ColumnPanel& panel = panels_[count_++];
    panel.vectors = whole >= vectors ? vectors : static_cast<int>(std::clamp<int64_t>(whole, 1, 2));
    panel.step = panel.vectors * isa_.lanes;
    panel.first = first;
    panel.width = std::min(panel.step, last - first);
    panel.at = at;
    at += panel.step * source_.depth;
    first += panel.width;
  }
}

// A row's run is too short for the hardware to see a stream: the rows ahead are asked for.
void PanelGroup::CopyRows() const {
  if (count_ == 0) return;
  const ColumnPanel& last = panels_[count_ - 1];
  const int64_t end = last.first + last.width, line = kLineBytes / SizeOf(source_.type);
  for (int64_t d = 0; d < source_.depth; ++d) {
    const int64_t ahead = (d + kRowsAhead) * source_.stride;
    for (int64_t column = panels_[0].first; column < end; column += line) {
      __builtin_prefetch(ElementAt(source_.at, ahead + column, source_.type));
    }
    for (const ColumnPanel& panel : *this) {
      float* target = Storage(panel) + d * panel.step;
      const void* row = ElementAt(source_.at, d * source_.stride + panel.first, source_.type);
      isa_.to_f32(source_.type, row, panel.width, target);
      std::fill(target + panel.width, target + panel.step, 0.0f);
    }
  }
}

}  // namespace jaxsparse
