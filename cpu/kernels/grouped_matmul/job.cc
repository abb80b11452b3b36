#include "cpu/kernels/grouped_matmul/job.h"

#include <algorithm>
#include <cstring>

#include "cpu/tile/matmul/strip.h"

namespace jaxsparse {
namespace {

constexpr int64_t kMaxWorkers = 64;
constexpr int64_t kChunkFloats = 128 << 10;  // strips of a chunk: a part of the second-level cache
constexpr int64_t kMaxChunkRows = 192;
constexpr int64_t kMinChunkRows = 24;
constexpr int64_t kItemsPerWorker = 4;
constexpr int64_t kStripesPerWorker = 2;
constexpr int64_t kClearBytes = 256 << 10;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t ChunkRows(int64_t depth) {
  const int64_t fits =
      kChunkFloats / std::max<int64_t>(depth, 1) / kMaxProductRows * kMaxProductRows;
  return std::clamp(fits, kMinChunkRows, kMaxChunkRows);
}

}  // namespace

GroupedMatmulJob::WorkerScratch GroupedMatmulJob::TakeWorker(const GroupedShape& shape,
                                                             ScratchCarver& carver) {
  WorkerScratch scratch;
  scratch.strips =
      carver.Take<float>(StripFloats(ChunkRows(shape.depth) + kMaxProductRows, shape.depth));
  scratch.panels = carver.Take<float>(PanelGroup::StorageFloats(shape.depth));
  return scratch;
}

// A float32 result takes the sums itself. A vector's width more, for whole vectors are read.
float* GroupedMatmulJob::TakeSums(const GroupedMatmulArgs& args, ScratchCarver& carver) {
  if (args.scatter == nullptr || args.out_type == DType::kF32) return static_cast<float*>(args.out);
  return carver.Take<float>(args.shape.out_rows * args.shape.outputs + kMaxLanes);
}

int64_t GroupedMatmulJob::ScratchBytes(const GroupedMatmulArgs& args, int64_t workers) {
  ScratchCarver carver(nullptr);
  GroupSpans spans(args.shape.groups, carver);
  TakeSums(args, carver);
  ScratchCarver worker(nullptr);
  TakeWorker(args.shape, worker);
  return (carver.used() + worker.used() * workers + ScratchCarver::kAlign).or_max();
}

GroupedMatmulJob::GroupedMatmulJob(const GroupedMatmulArgs& args, int64_t pool_workers)
    : args_(args),
      isa_(MaskedConvIsa()),
      tiles_(MatmulTiles()),
      carver_(args.scratch),
      spans_(args.shape.groups, carver_),
      sums_(TakeSums(args, carver_)) {
  const int64_t fixed = ScratchBytes(args, 0), each = ScratchBytes(args, 1) - fixed;
  const int64_t room = each == 0 ? kMaxWorkers : (args.scratch_bytes - fixed) / each;
  workers_ = std::min({pool_workers, kMaxWorkers, room});
  if (args.scratch_bytes < fixed || workers_ < 1) {
    workers_ = 0;
    return;
  }
  spans_.Build(args.sizes, args.shape.sorted_rows, ChunkRows(args.shape.depth), kMaxProductRows);
  Partition();
}

void GroupedMatmulJob::Partition() {
  const GroupedShape& s = args_.shape;
  const int64_t columns = CeilDiv(s.outputs, kMaxPanelFloats);
  const bool scatters = args_.scatter != nullptr;
  const int64_t chunks = scatters ? 1 : spans_.chunks();
  const int64_t wish = scatters ? kStripesPerWorker * workers_
                                : CeilDiv(kItemsPerWorker * workers_, std::max<int64_t>(chunks, 1));
  const int64_t wide =
      CeilDiv(columns, std::clamp<int64_t>(wish, 1, std::max<int64_t>(columns, 1)));
  range_ = std::max<int64_t>(wide, 1) * kMaxPanelFloats;
  ranges_ = CeilDiv(s.outputs, range_);
  product_items_ = chunks * ranges_;
  clear_rows_ =
      std::max<int64_t>(kClearBytes / std::max<int64_t>(s.outputs * SizeOf(args_.out_type), 1), 1);
  const int64_t unowned = scatters ? 0 : s.out_rows - spans_.rows();
  const int64_t items = product_items_ + CeilDiv(unowned, clear_rows_);
  workers_ = std::clamp<int64_t>(items, 1, workers_);
  items_.emplace(items);
}

GroupedMatmulJob::WorkerScratch GroupedMatmulJob::ScratchOf(int64_t worker) const {
  ScratchCarver carver = carver_;
  WorkerScratch scratch = {};
  for (int64_t w = 0; w <= worker; ++w) scratch = TakeWorker(args_.shape, carver);
  return scratch;
}

void GroupedMatmulJob::Run(int64_t worker) {
  const WorkerScratch scratch = ScratchOf(worker);
  for (int64_t item; items_->Next(&item);) {
    if (item >= product_items_) {
      ClearRows(item - product_items_);
      continue;
    }
    const int64_t first = item % ranges_ * range_,
                  last = std::min(first + range_, args_.shape.outputs);
    if (args_.scatter != nullptr) {
      RunStripe(first, last, scratch);
    } else {
      RunChunk(spans_.Chunk(item / ranges_), first, last, scratch);
    }
  }
}

void GroupedMatmulJob::RunChunk(const RowChunk& chunk, int64_t first_column, int64_t last_column,
                                const WorkerScratch& scratch) const {
  const GroupedShape& s = args_.shape;
  const GroupedVariant& variant = kGroupedVariants[args_.variant];
  const ProductShape tile = isa_.wide_file ? variant.tile32 : variant.tile16;
  Strip strips[kMaxChunkRows];
  int64_t count = 0;
  float* storage = scratch.strips;
  for (int64_t row = 0; row < chunk.count; row += tile.rows) {
    const int64_t rows = std::min<int64_t>(tile.rows, chunk.count - row);
    strips[count] = LoadRows(chunk.first + row, rows, tile.vectors, storage);
    storage += StripFloats(strips[count++].height, s.depth);
  }
  const PanelSource source = {
      args_.in_type, ElementAt(args_.rhs, chunk.group * s.depth * s.outputs, args_.in_type),
      s.depth, s.outputs, args_.transpose_rhs};
  PanelGroup panels(isa_, source, scratch.panels);
  const int64_t group = PanelGroup::GroupColumns(s.depth);
  for (int64_t column = first_column; column < last_column; column += group) {
    panels.Load(column, std::min(column + group, last_column), tile.vectors);
    for (const ColumnPanel& panel : panels) {
      for (int64_t i = 0; i < count; ++i) Multiply(strips[i], panel);
    }
  }
}

// All rows, in their order, into one stripe of columns.
void GroupedMatmulJob::RunStripe(int64_t first_column, int64_t last_column,
                                 const WorkerScratch& scratch) const {
  const GroupedShape& s = args_.shape;
  const int64_t width = last_column - first_column;
  for (int64_t row = 0; row < s.out_rows; ++row) {
    std::memset(sums_ + row * s.outputs + first_column, 0,
                static_cast<size_t>(width) * sizeof(float));
  }
  for (int64_t c = 0; c < spans_.chunks(); ++c) {
    RunChunk(spans_.Chunk(c), first_column, last_column, scratch);
  }
  if (args_.out_type == DType::kF32) return;
  for (int64_t row = 0; row < s.out_rows; ++row) {
    void* target = static_cast<char*>(args_.out) + row * s.outputs * SizeOf(args_.out_type);
    isa_.finish({sums_ + row * s.outputs + first_column, 0, 1, width, nullptr, &target,
                 first_column, args_.out_type, Activation::kNone});
  }
}

GroupedMatmulJob::Strip GroupedMatmulJob::LoadRows(int64_t first, int64_t count, int vectors,
                                                   float* storage) const {
  const GroupedShape& s = args_.shape;
  const void* rows[kMaxProductRows];
  for (int64_t r = 0; r < count; ++r) {
    const int64_t row = RowOf(args_.gather, first + r, s.lhs_rows);
    rows[r] = row < 0 ? nullptr : ElementAt(args_.lhs, row * s.depth, args_.in_type);
  }
  const int64_t height = TileHeight(tiles_, vectors, count);
  LoadStrip(isa_, args_.in_type, rows, count, height, s.depth, storage);
  return {first, count, height, storage};
}

void GroupedMatmulJob::Multiply(const Strip& strip, const ColumnPanel& panel) const {
  alignas(64) float sums[kMaxProductRows * kMaxPanelFloats];
  const int64_t stride = panel.step;
  tiles_.product[panel.vectors][strip.height](
      {strip.at, panel.at, args_.shape.depth, panel.step, nullptr, nullptr, sums});
  for (int64_t r = 0; r < strip.count; ++r) {
    const int64_t i = strip.first + r;
    float* row = sums + r * stride;
    if (RowOf(args_.gather, i, args_.shape.lhs_rows) < 0) {
      std::fill(row, row + stride, 0.0f);
    } else if (args_.row_weights != nullptr) {
      const float weight = args_.row_weights[i];
      for (int64_t o = 0; o < stride; ++o) row[o] *= weight;
    }
  }
  if (args_.scatter != nullptr) {
    Add(strip, panel, sums, stride);
  } else {
    Store(strip, panel, sums, stride);
  }
}

void GroupedMatmulJob::Store(const Strip& strip, const ColumnPanel& panel, float* sums,
                             int64_t stride) const {
  void* targets[kMaxProductRows];
  const int64_t row_bytes = args_.shape.outputs * SizeOf(args_.out_type);
  for (int64_t r = 0; r < strip.count; ++r) {
    targets[r] = static_cast<char*>(args_.out) + (strip.first + r) * row_bytes;
  }
  isa_.finish({sums, stride, strip.count, panel.width, nullptr, targets, panel.first,
               args_.out_type, Activation::kNone});
}

void GroupedMatmulJob::Add(const Strip& strip, const ColumnPanel& panel, const float* sums,
                           int64_t stride) const {
  for (int64_t r = 0; r < strip.count; ++r) {
    const int64_t row = RowOf(args_.scatter, strip.first + r, args_.shape.out_rows);
    if (row < 0 || RowOf(args_.gather, strip.first + r, args_.shape.lhs_rows) < 0) continue;
    float* target = sums_ + row * args_.shape.outputs + panel.first;
    for (int64_t o = 0; o < panel.width; ++o) target[o] += sums[r * stride + o];
  }
}

void GroupedMatmulJob::ClearRows(int64_t item) const {
  const int64_t row_bytes = args_.shape.outputs * SizeOf(args_.out_type);
  const int64_t first = spans_.rows() + item * clear_rows_;
  const int64_t last = std::min(first + clear_rows_, args_.shape.out_rows);
  std::memset(static_cast<char*>(args_.out) + first * row_bytes, 0,
              static_cast<size_t>((last - first) * row_bytes));
}

}  // namespace jaxsparse
