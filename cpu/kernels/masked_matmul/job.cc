#include "cpu/kernels/masked_matmul/job.h"

#include <algorithm>
#include <cstring>

namespace jaxsparse {
namespace {

constexpr int64_t kMaxWorkers = 64;
constexpr int64_t kItemsPerWorker = 4;
constexpr int64_t kMinRange = 96;  // rows that share a copy of the panels, where there are as many

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

MaskedMatmulJob::WorkerScratch MaskedMatmulJob::TakeWorker(const MaskedMatmulArgs& args,
                                                           ScratchCarver& carver) {
  WorkerScratch scratch;
  scratch.panels = carver.Take<float>(PanelGroup::StorageFloats(args.depth));
  const int64_t depth = args.b_bits.all() ? 0 : args.depth;
  scratch.has = carver.Take<uint8_t>(PanelGroup::kMaxPanels * depth);
  scratch.kept = carver.Take<int32_t>(PanelGroup::kMaxPanels * depth);
  scratch.kept_size = carver.Take<int64_t>(PanelGroup::kMaxPanels);
  scratch.strip_at = carver.Take<int32_t>(depth);
  scratch.panel_at = carver.Take<int32_t>(depth);
  return scratch;
}

int64_t MaskedMatmulJob::ScratchBytes(const MaskedMatmulArgs& args, int64_t workers) {
  ScratchCarver worker(nullptr);
  CondensedStrip strip(args, worker);
  TakeWorker(args, worker);
  return (worker.used() * workers + ScratchCarver::kAlign).or_max();
}

MaskedMatmulJob::MaskedMatmulJob(const MaskedMatmulArgs& args, int64_t pool_workers)
    : args_(args), isa_(MaskedConvIsa()), tiles_(MatmulTiles()), carver_(args.scratch) {
  const int64_t fixed = ScratchBytes(args, 0), each = ScratchBytes(args, 1) - fixed;
  const int64_t room = each == 0 ? kMaxWorkers : (args.scratch_bytes - fixed) / each;
  workers_ = std::min({pool_workers, kMaxWorkers, room});
  if (args.scratch_bytes < fixed || workers_ < 1) {
    workers_ = 0;
    return;
  }
  const int64_t chosen = args.variant == 0 ? LeastCover(args_, isa_.wide_file) : args.variant;
  shape_ = isa_.wide_file ? kMaskedVariants[chosen].tile32 : kMaskedVariants[chosen].tile16;
  Partition();
}

void MaskedMatmulJob::Partition() {
  group_ = PanelGroup::GroupColumns(args_.depth);
  groups_ = CeilDiv(args_.columns, group_);
  const int64_t products = std::max<int64_t>(args_.lists * groups_, 1);
  const int64_t wish = CeilDiv(kItemsPerWorker * workers_, products);
  range_ = std::max(CeilDiv(args_.rows, std::max<int64_t>(wish, 1)), kMinRange);
  // No strip has rows of two ranges: blocks of rows stay whole.
  if (!args_.a_bits.all()) range_ = CeilDiv(range_, args_.a_bits.row_size) * args_.a_bits.row_size;
  ranges_ = CeilDiv(args_.rows, range_);
  const int64_t items = args_.lists * groups_ * ranges_;
  workers_ = std::clamp<int64_t>(items, 1, workers_);
  items_.emplace(items);
}

void MaskedMatmulJob::Run(int64_t worker) {
  ScratchCarver carver = carver_;
  for (int64_t w = 0; w < worker; ++w) {
    CondensedStrip skipped(args_, carver);
    TakeWorker(args_, carver);
  }
  CondensedStrip strip(args_, carver);
  const WorkerScratch scratch = TakeWorker(args_, carver);
  for (int64_t item; items_->Next(&item);) RunItem(item, strip, scratch);
}

// Whether anything of the row may be other than zero in the columns [first, last).
bool MaskedMatmulJob::HasWork(int64_t list, int64_t row, int64_t first, int64_t last) const {
  const BlockBits &a = args_.a_bits, &out = args_.out_bits;
  if (!a.all() && !a.HasAny(a.RowBits(list, row), 0, args_.depth)) return false;
  return out.all() || out.HasAny(out.RowBits(list, row), first, last);
}

void MaskedMatmulJob::RunItem(int64_t item, CondensedStrip& strip,
                              const WorkerScratch& scratch) const {
  const int64_t list = item / (groups_ * ranges_), in_list = item % (groups_ * ranges_);
  const int64_t first = in_list / ranges_ * group_, last = std::min(first + group_, args_.columns);
  const int64_t begin = in_list % ranges_ * range_, end = std::min(begin + range_, args_.rows);
  const int64_t matrix = (args_.b_lists == 1 ? 0 : list) * args_.depth * args_.columns;
  const PanelSource source = {args_.in_type, ElementAt(args_.b, matrix, args_.in_type),
                              args_.depth,   args_.columns,
                              false,         args_.columns};
  PanelGroup panels(isa_, tiles_, source, scratch.panels);
  bool loaded = false;
  const int64_t most = StripRows(args_.a_bits, shape_.rows);
  const bool whole_blocks = !args_.a_bits.all() && args_.a_bits.row_size >= shape_.rows;
  int64_t rows[kMaxProductRows];
  for (int64_t row = begin; row < end;) {
    int64_t count = 0, block = -1;
    for (; row < end && count < most; ++row) {
      const int64_t at = whole_blocks ? row / args_.a_bits.row_size : 0;
      if (count > 0 && at != block) break;
      block = at;
      if (HasWork(list, row, first, last)) {
        rows[count++] = row;
      } else {
        Clear(list, row, first, last);
      }
    }
    if (count == 0) continue;
    if (!loaded) {
      panels.Load(first, last, shape_.vectors);
      MaskPanels(list, panels, scratch);
      loaded = true;
    }
    const Tile tile = {list, rows, count, TileHeight(tiles_, shape_.vectors, count)};
    strip.Load(isa_, list, rows, count, tile.height);
    int64_t index = 0;
    for (const ColumnPanel& panel : panels) Multiply(tile, panel, index++, strip, scratch);
  }
}

// Zeroes what the mask leaves out of the loaded panels, and notes which rows of each are left.
void MaskedMatmulJob::MaskPanels(int64_t list, const PanelGroup& panels,
                                 const WorkerScratch& scratch) const {
  const BlockBits& bits = args_.b_bits;
  if (bits.all()) return;
  uint8_t* has = scratch.has;
  int32_t* kept = scratch.kept;
  int64_t index = 0;
  for (const ColumnPanel& panel : panels) {
    float* row = panels.Storage(panel);
    int64_t size = 0;
    for (int64_t d = 0; d < args_.depth; ++d, row += panel.step) {
      const uint32_t* row_bits = bits.RowBits(list, d);
      has[d] = bits.HasAny(row_bits, panel.first, panel.first + panel.width);
      kept[size] = static_cast<int32_t>(d);
      size += has[d];
      if (has[d]) bits.Erase(row_bits, panel.first, panel.first + panel.width, row);
    }
    scratch.kept_size[index++] = size;
    has += args_.depth;
    kept += args_.depth;
  }
}

// The columns that both the strip and a panel have: their number; the lists go to `scratch`.
int64_t MaskedMatmulJob::Intersect(int64_t index, const CondensedStrip& strip,
                                   const WorkerScratch& scratch) const {
  if (args_.a_bits.all()) {  // column d of the strip is column d of a
    const int32_t* kept = scratch.kept + index * args_.depth;
    for (int64_t j = 0; j < scratch.kept_size[index]; ++j) {
      scratch.strip_at[j] = strip.strip_at()[kept[j]];
      scratch.panel_at[j] = kept[j];
    }
    return scratch.kept_size[index];
  }
  const uint8_t* has = scratch.has + index * args_.depth;
  int64_t size = 0;
  for (int64_t j = 0; j < strip.size(); ++j) {
    scratch.strip_at[size] = strip.strip_at()[j];
    scratch.panel_at[size] = strip.columns()[j];
    size += has[strip.columns()[j]];
  }
  return size;
}

void MaskedMatmulJob::Multiply(const Tile& tile, const ColumnPanel& panel, int64_t index,
                               const CondensedStrip& strip, const WorkerScratch& scratch) const {
  const BlockBits& out = args_.out_bits;
  const auto wanted = [&](int64_t row) {
    return out.HasAny(out.RowBits(tile.list, row), panel.first, panel.first + panel.width);
  };
  if (!out.all() && std::none_of(tile.rows, tile.rows + tile.count, wanted)) {
    for (int64_t r = 0; r < tile.count; ++r) {
      Clear(tile.list, tile.rows[r], panel.first, panel.first + panel.width);
    }
    return;
  }
  const int32_t *strip_at = strip.strip_at(), *panel_at = strip.columns();
  int64_t depth = strip.size();
  if (!args_.b_bits.all()) {
    depth = Intersect(index, strip, scratch);
    strip_at = scratch.strip_at;
    panel_at = scratch.panel_at;
  }
  alignas(64) float sums[kMaxProductRows * kMaxPanelFloats];
  tiles_.listed[panel.vectors][tile.height](
      {strip.at(), panel.at, depth, panel.step, strip_at, panel_at, sums});
  Store(tile, panel, sums);
}

void MaskedMatmulJob::Store(const Tile& tile, const ColumnPanel& panel, float* sums) const {
  const BlockBits& out = args_.out_bits;
  void* targets[kMaxProductRows];
  for (int64_t r = 0; r < tile.count; ++r) {
    const int64_t row = tile.list * args_.rows + tile.rows[r];
    targets[r] = static_cast<char*>(args_.out) + row * args_.columns * SizeOf(args_.out_type);
    if (out.all()) continue;
    out.Erase(out.RowBits(tile.list, tile.rows[r]), panel.first, panel.first + panel.width,
              sums + r * panel.step);
  }
  isa_.finish({sums, panel.step, tile.count, panel.width, nullptr, targets, panel.first,
               args_.out_type, Activation::kNone});
}

void MaskedMatmulJob::Clear(int64_t list, int64_t row, int64_t first, int64_t last) const {
  const int64_t from = (list * args_.rows + row) * args_.columns + first;
  std::memset(static_cast<char*>(args_.out) + from * SizeOf(args_.out_type), 0,
              static_cast<size_t>((last - first) * SizeOf(args_.out_type)));
}

}  // namespace jaxsparse
