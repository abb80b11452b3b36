#include "cpu/tile/matmul/panels.h"

#include <algorithm>

namespace jaxsparse {
namespace {

constexpr int64_t kGroupFloats = 256 << 10;
constexpr int64_t kMaxGroupColumns = 512;
constexpr int64_t kRun = 64;  // source entries converted at a time

}  // namespace

int64_t PanelGroup::GroupColumns(int64_t depth) {
  const int64_t fits =
      kGroupFloats / std::max<int64_t>(depth, 1) / kMaxPanelFloats * kMaxPanelFloats;
  return std::clamp(fits, kMaxPanelFloats, kMaxGroupColumns);
}

void PanelGroup::Load(int64_t first, int64_t last, int vectors) {
  Cut(first, last, vectors);
  if (!source_.transposed) return CopyRows();
  for (const ColumnPanel& panel : *this) CopyTransposed(panel);
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

void PanelGroup::CopyRows() const {
  for (int64_t d = 0; d < source_.depth; ++d) {
    for (const ColumnPanel& panel : *this) {
      float* target = Storage(panel) + d * panel.step;
      const void* row = ElementAt(source_.at, d * source_.columns + panel.first, source_.type);
      isa_.to_f32(source_.type, row, panel.width, target);
      std::fill(target + panel.width, target + panel.step, 0.0f);
    }
  }
}

void PanelGroup::CopyTransposed(const ColumnPanel& panel) const {
  float run[kRun];
  for (int64_t d = 0; d < source_.depth; d += kRun) {
    const int64_t depth = std::min(source_.depth - d, kRun);
    float* target = Storage(panel) + d * panel.step;
    for (int64_t o = 0; o < panel.step; ++o) {
      if (o < panel.width) {
        const int64_t from = (panel.first + o) * source_.depth + d;
        isa_.to_f32(source_.type, ElementAt(source_.at, from, source_.type), depth, run);
      } else {
        std::fill(run, run + depth, 0.0f);
      }
      for (int64_t i = 0; i < depth; ++i) target[i * panel.step + o] = run[i];
    }
  }
}

}  // namespace jaxsparse
