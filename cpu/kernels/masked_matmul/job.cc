#include "cpu/kernels/masked_matmul/job.h"

#include <algorithm>
#include <cstring>

namespace jaxsparse {
namespace {

constexpr int64_t kMaxWorkers = 64;
constexpr int64_t kItemsPerWorker = 4;
constexpr int64_t kMinRange = 96;  // rows that share a copy of the panels, where there are as many
// Up to kWhole columns of a are one block; a deeper sum is cut into blocks of kDepth, and kGroup
// columns of b are loaded at a time.
constexpr int64_t kWhole = 2048, kDepth = 512, kGroup = 256;
// Rows and sums of a chunk. The sums of several blocks are read again for each, which costs less
// than to load b for more chunks.
constexpr int64_t kMaxChunk = 768, kAddedFloats = 256 << 10;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Columns of a that are loaded at once.
int64_t Block(int64_t depth) { return depth > kWhole ? kDepth : depth; }

int64_t GroupColumns(int64_t depth) {
  return depth > kWhole ? kGroup : PanelGroup::GroupColumns(depth);
}

// With one block, a strip is stored before the next.
int64_t SumFloats(int64_t depth) {
  return depth > kWhole ? kAddedFloats : kMaxProductRows * GroupColumns(depth);
}

}  // namespace

MaskedMatmulJob::WorkerScratch MaskedMatmulJob::TakeWorker(const MaskedMatmulArgs& args,
                                                           ScratchCarver& carver) {
  WorkerScratch scratch;
  const int64_t depth = Block(args.depth);
  scratch.panels = carver.Take<float>(GroupColumns(args.depth) * depth);
  const int64_t listed = args.b_bits.all() ? 0 : depth;
  scratch.has = carver.Take<uint8_t>(PanelGroup::kMaxPanels * listed);
  scratch.kept = carver.Take<int32_t>(PanelGroup::kMaxPanels * listed);
  scratch.kept_size = carver.Take<int64_t>(PanelGroup::kMaxPanels);
  scratch.strip_at = carver.Take<int32_t>(listed);
  scratch.panel_at = carver.Take<int32_t>(listed);
  scratch.rows = carver.Take<int64_t>(kMaxChunk);
  scratch.strips = carver.Take<Strip>(kMaxChunk);
  scratch.sums = carver.Take<float>(SumFloats(args.depth));
  return scratch;
}

int64_t MaskedMatmulJob::ScratchBytes(const MaskedMatmulArgs& args, int64_t workers) {
  ScratchCarver worker(nullptr);
  CondensedStrip strip(args, Block(args.depth), worker);
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
  group_ = GroupColumns(args_.depth);
  groups_ = CeilDiv(args_.columns, group_);
  const int64_t products = std::max<int64_t>(args_.lists * groups_, 1);
  const int64_t wish = CeilDiv(kItemsPerWorker * workers_, products);
  range_ = std::max(CeilDiv(args_.rows, std::max<int64_t>(wish, 1)), kMinRange);
  // A strip is padded to a height that is built, three rows to four at the worst.
  chunk_ = args_.depth > kWhole ? std::min(kAddedFloats / group_ * 3 / 4, kMaxChunk) : kMaxChunk;
  // No strip has rows of two ranges or chunks: blocks of rows stay whole where a chunk holds one.
  if (!args_.a_bits.all() && args_.a_bits.row_size <= chunk_) {
    range_ = CeilDiv(range_, args_.a_bits.row_size) * args_.a_bits.row_size;
    chunk_ = chunk_ / args_.a_bits.row_size * args_.a_bits.row_size;
  }
  ranges_ = CeilDiv(args_.rows, range_);
  const int64_t items = args_.lists * groups_ * ranges_;
  workers_ = std::clamp<int64_t>(items, 1, workers_);
  items_.emplace(items);
}

void MaskedMatmulJob::Run(int64_t worker) {
  ScratchCarver carver = carver_;
  for (int64_t w = 0; w < worker; ++w) {
    CondensedStrip skipped(args_, Block(args_.depth), carver);
    TakeWorker(args_, carver);
  }
  CondensedStrip strip(args_, Block(args_.depth), carver);
  const WorkerScratch scratch = TakeWorker(args_, carver);
  for (int64_t index; items_->Next(&index);) {
    const int64_t list = index / (groups_ * ranges_), in_list = index % (groups_ * ranges_);
    const int64_t column = in_list / ranges_ * group_, row = in_list % ranges_ * range_;
    RunItem({list, column, std::min(column + group_, args_.columns), row,
             std::min(row + range_, args_.rows)},
            strip, scratch);
  }
}

// Whether anything of the row may be other than zero in the item's columns.
bool MaskedMatmulJob::HasWork(const Item& item, int64_t row) const {
  const BlockBits &a = args_.a_bits, &out = args_.out_bits;
  if (!a.all() && !a.HasAny(a.RowBits(item.list, row), 0, args_.depth)) return false;
  return out.all() || out.HasAny(out.RowBits(item.list, row), item.first_column, item.last_column);
}

// Gives the number of strips, and clears the rows that have nothing to do.
int64_t MaskedMatmulJob::ListStrips(const Item& item, const WorkerScratch& scratch) const {
  const int64_t most = StripRows(args_.a_bits, shape_.rows);
  const bool whole_blocks = !args_.a_bits.all() && args_.a_bits.row_size >= shape_.rows;
  const int64_t row_floats = CeilDiv(item.last_column - item.first_column, isa_.lanes) * isa_.lanes;
  int64_t* rows = scratch.rows;
  float* sums = scratch.sums;
  int64_t strips = 0;
  for (int64_t row = item.first_row; row < item.last_row;) {
    int64_t count = 0, block = -1;
    for (; row < item.last_row && count < most; ++row) {
      const int64_t at = whole_blocks ? row / args_.a_bits.row_size : 0;
      if (count > 0 && at != block) break;
      block = at;
      if (HasWork(item, row)) {
        rows[count++] = row;
      } else {
        Clear(item.list, row, item.first_column, item.last_column);
      }
    }
    if (count == 0) continue;
    const int64_t height = TileHeight(tiles_, shape_.vectors, count);
    scratch.strips[strips++] = {rows, count, height, sums};
    rows += count;
    if (args_.depth > kWhole) sums += height * row_floats;
  }
  return strips;
}

// Where the depth is one block, its panels are loaded once; else once for each chunk of rows.
void MaskedMatmulJob::RunItem(const Item& item, CondensedStrip& loaded,
                              const WorkerScratch& scratch) const {
  const int64_t matrix = (args_.b_lists == 1 ? 0 : item.list) * args_.depth * args_.columns;
  std::optional<PanelGroup> panels;
  for (int64_t row = item.first_row; row < item.last_row; row += chunk_) {
    const Item chunk = {item.list, item.first_column, item.last_column, row,
                        std::min(row + chunk_, item.last_row)};
    const int64_t strips = ListStrips(chunk, scratch);
    if (strips == 0) continue;
    int64_t d = 0;
    do {
      const int64_t depth = std::min(args_.depth - d, Block(args_.depth));
      if (!panels.has_value() || depth < args_.depth) {
        const PanelSource source = {
            args_.in_type, ElementAt(args_.b, matrix + d * args_.columns, args_.in_type),
            depth,         args_.columns,
            false,         args_.columns};
        panels.emplace(isa_, tiles_, source, scratch.panels);
        panels->Load(item.first_column, item.last_column, shape_.vectors);
        MaskPanels(item, d, depth, *panels, scratch);
      }
      for (int64_t s = 0; s < strips; ++s) {
        const Strip& strip = scratch.strips[s];
        loaded.Load(isa_, {item.list, strip.rows, strip.count, strip.height}, d, depth);
        MultiplyPanels(item, strip, *panels, loaded, d > 0, scratch);
        if (d + depth == args_.depth) Store(item, strip, *panels);
      }
      d += depth;
    } while (d < args_.depth);
  }
}

void MaskedMatmulJob::MultiplyPanels(const Item& item, const Strip& strip, const PanelGroup& panels,
                                     const CondensedStrip& loaded, bool adds,
                                     const WorkerScratch& scratch) const {
  float* sums = strip.sums;
  int64_t index = 0;
  for (const ColumnPanel& panel : panels) {
    if (Wants(item, strip, panel)) Multiply(strip, panel, sums, index, loaded, adds, scratch);
    sums += strip.height * panel.step;
    ++index;
  }
}

// Zeroes what the mask leaves out of the loaded panels, and notes which rows of each are left.
void MaskedMatmulJob::MaskPanels(const Item& item, int64_t first_depth, int64_t depth,
                                 const PanelGroup& panels, const WorkerScratch& scratch) const {
  const BlockBits& bits = args_.b_bits;
  if (bits.all()) return;
  uint8_t* has = scratch.has;
  int32_t* kept = scratch.kept;
  int64_t index = 0;
  for (const ColumnPanel& panel : panels) {
    float* row = panels.Storage(panel);
    int64_t size = 0;
    for (int64_t d = 0; d < depth; ++d, row += panel.step) {
      const uint32_t* row_bits = bits.RowBits(item.list, first_depth + d);
      has[d] = bits.HasAny(row_bits, panel.first, panel.first + panel.width);
      kept[size] = static_cast<int32_t>(d);
      size += has[d];
      if (has[d]) bits.Erase(row_bits, panel.first, panel.first + panel.width, row);
    }
    scratch.kept_size[index++] = size;
    has += Block(args_.depth);
    kept += Block(args_.depth);
  }
}

// The columns that both the strip and a panel have: their number; the lists go to `scratch`.
int64_t MaskedMatmulJob::Intersect(int64_t index, const CondensedStrip& loaded,
                                   const WorkerScratch& scratch) const {
  const int64_t block = Block(args_.depth);
  if (args_.a_bits.all()) {  // column d of the strip is column d of the block
    const int32_t* kept = scratch.kept + index * block;
    for (int64_t j = 0; j < scratch.kept_size[index]; ++j) {
      scratch.strip_at[j] = loaded.strip_at()[kept[j]];
      scratch.panel_at[j] = kept[j];
    }
    return scratch.kept_size[index];
  }
  const uint8_t* has = scratch.has + index * block;
  int64_t size = 0;
  for (int64_t j = 0; j < loaded.size(); ++j) {
    scratch.strip_at[size] = loaded.strip_at()[j];
    scratch.panel_at[size] = loaded.columns()[j];
    size += has[loaded.columns()[j]];
  }
  return size;
}

bool MaskedMatmulJob::Wants(const Item& item, const Strip& strip, const ColumnPanel& panel) const {
  const BlockBits& out = args_.out_bits;
  return out.all() || std::any_of(strip.rows, strip.rows + strip.count, [&](int64_t row) {
           return out.HasAny(out.RowBits(item.list, row), panel.first, panel.first + panel.width);
         });
}

void MaskedMatmulJob::Multiply(const Strip& strip, const ColumnPanel& panel, float* sums,
                               int64_t index, const CondensedStrip& loaded, bool adds,
                               const WorkerScratch& scratch) const {
  const int32_t *strip_at = loaded.strip_at(), *panel_at = loaded.columns();
  int64_t depth = loaded.size();
  if (!args_.b_bits.all()) {
    depth = Intersect(index, loaded, scratch);
    strip_at = scratch.strip_at;
    panel_at = scratch.panel_at;
  }
  if (adds && depth == 0) return;
  tiles_.listed[panel.vectors][strip.height](
      {loaded.at(), panel.at, depth, panel.step, strip_at, panel_at, sums, adds});
}

void MaskedMatmulJob::Store(const Item& item, const Strip& strip, const PanelGroup& panels) const {
  const BlockBits& out = args_.out_bits;
  void* targets[kMaxProductRows];
  for (int64_t r = 0; r < strip.count; ++r) {
    const int64_t row = item.list * args_.rows + strip.rows[r];
    targets[r] = static_cast<char*>(args_.out) + row * args_.columns * SizeOf(args_.out_type);
  }
  float* sums = strip.sums;
  for (const ColumnPanel& panel : panels) {
    const int64_t last = panel.first + panel.width;
    if (!Wants(item, strip, panel)) {
      for (int64_t r = 0; r < strip.count; ++r) Clear(item.list, strip.rows[r], panel.first, last);
    } else {
      for (int64_t r = 0; r < strip.count && !out.all(); ++r) {
        out.Erase(out.RowBits(item.list, strip.rows[r]), panel.first, last, sums + r * panel.step);
      }
      isa_.finish({sums, panel.step, strip.count, panel.width, nullptr, targets, panel.first,
                   args_.out_type, Activation::kNone});
    }
    sums += strip.height * panel.step;
  }
}

void MaskedMatmulJob::Clear(int64_t list, int64_t row, int64_t first, int64_t last) const {
  const int64_t from = (list * args_.rows + row) * args_.columns + first;
  std::memset(static_cast<char*>(args_.out) + from * SizeOf(args_.out_type), 0,
              static_cast<size_t>((last - first) * SizeOf(args_.out_type)));
}

}  // namespace jaxsparse
