// The columns of a right operand cut into panels, one register tile wide: read in place, or copied
// to contiguous float32.
#pragma once

#include <cstdint>

#include "cpu/tile/conv/isa.h"
#include "cpu/tile/matmul/isa.h"

namespace jaxsparse {

// One matrix [depth, columns] in memory, or its transpose.
struct PanelSource {
  DType type;
  const void* at;
  int64_t depth, columns;
  bool transposed;  // stored [columns, depth]
  int64_t stride;   // elements from one stored row to the next
};

struct ColumnPanel {
  int64_t first, width;
  int vectors;
  const float* at;
  int64_t step;  // floats from row to row
};

// Some neighbouring panels, loaded together so that a row of the source is read in one long run.
class PanelGroup {
 public:
  static constexpr int64_t kMaxPanels = 72;  // the narrowest tile is 8 floats wide

  // Columns that a group covers at the most: all panels of a group stay in the second-level cache.
  static int64_t GroupColumns(int64_t depth);
  static int64_t StorageFloats(int64_t depth) { return GroupColumns(depth) * depth; }

  PanelGroup(const ConvIsa& isa, const MatmulIsa& tiles, const PanelSource& source, float* storage)
      : isa_(isa), tiles_(tiles), source_(source), storage_(storage) {}

  // Cuts and loads the panels of the columns [first, last); last - first is at most
  // GroupColumns(depth).
  void Load(int64_t first, int64_t last, int vectors);

  const ColumnPanel* begin() const { return panels_; }
  const ColumnPanel* end() const { return panels_ + count_; }
  // Where a loaded panel lies.
  float* Storage(const ColumnPanel& panel) const { return storage_ + (panel.at - storage_); }

 private:
  void Cut(int64_t first, int64_t last, int vectors);
  void CopyRows() const;

  const ConvIsa& isa_;
  const MatmulIsa& tiles_;
  PanelSource source_;
  float* storage_;
  ColumnPanel panels_[kMaxPanels];
  int64_t count_ = 0;
};

}  // namespace jaxsparse
