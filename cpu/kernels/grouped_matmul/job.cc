#include "cpu/kernels/grouped_matmul/job.h"

#include <algorithm>
#include <cstring>

#include "cpu/tile/matmul/strip.h"

namespace jaxsparse {
namespace {

constexpr int64_t kMaxWorkers = 64;
constexpr int64_t kChunkRows = 192;
constexpr int64_t kDepth = 256;  // of a block: panels and strips stay in the second-level cache
constexpr int64_t kSumFloats = 128 << 10;  // of a chunk, between blocks of the depth
// Up to so many rows read the weights in place, kFewDepth rows of them at a time; kFewFloats: their
// sums, in the first-level cache.
constexpr int64_t kFewRows = 16, kFewFloats = 4 << 10, kFewDepth = 16;
constexpr int64_t kItemsPerWorker = 4;
constexpr int64_t kStripesPerWorker = 2;
constexpr int64_t kClearBytes = 256 << 10;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

GroupedMatmulJob::WorkerScratch GroupedMatmulJob::TakeWorker(const GroupedShape& shape,
                                                             ScratchCarver& carver) {
  WorkerScratch scratch;
  const int64_t depth = std::min(shape.depth, kDepth);
  const Checked few = Checked(shape.depth) * kFewRows;
  scratch.strips =
      carver.Take<float>(std::max(few.or_max(), StripFloats(kChunkRows + kMaxProductRows, depth)));
  scratch.panels = carver.Take<float>(PanelGroup::StorageFloats(depth));
  scratch.sums = carver.Take<float>(kSumFloats);
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
      ffn_(FfnIsaInUse()),
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
  spans_.Build(args.sizes, args.shape.sorted_rows, kChunkRows, kMaxProductRows);
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
  if (chunk.count <= kFewRows && !args_.transpose_rhs) {
    return RunFew(chunk, first_column, last_column, scratch);
  }
  const int64_t fits = kSumFloats / (chunk.count + kMaxProductRows);
  const int64_t columns = fits / kMaxPanelFloats * kMaxPanelFloats;
  for (int64_t column = first_column; column < last_column; column += columns) {
    RunColumns(chunk, column, std::min(column + columns, last_column), scratch);
  }
}

void GroupedMatmulJob::RunColumns(const RowChunk& chunk, int64_t first_column, int64_t last_column,
                                  const WorkerScratch& scratch) const {
  const GroupedShape& s = args_.shape;
  const GroupedVariant& variant = kGroupedVariants[args_.variant];
  const ProductShape tile = isa_.wide_file ? variant.tile32 : variant.tile16;
  const int64_t row_floats = CeilDiv(last_column - first_column, kMaxLanes) * kMaxLanes;
  Strip strips[kChunkRows];
  int64_t d = 0;
  do {
    const int64_t depth = std::min(s.depth - d, kDepth);
    const bool begins = d == 0, ends = d + depth == s.depth;
    const int64_t count = LoadStrips(chunk, d, depth, tile, scratch.strips, strips);
    const int64_t group_at = chunk.group * s.depth * s.outputs;
    const int64_t at = group_at + (args_.transpose_rhs ? d : d * s.outputs);
    const PanelSource source = {
        args_.in_type,       ElementAt(args_.rhs, at, args_.in_type),  depth, s.outputs,
        args_.transpose_rhs, args_.transpose_rhs ? s.depth : s.outputs};
    PanelGroup panels(isa_, tiles_, source, scratch.panels);
    const int64_t group = PanelGroup::GroupColumns(depth);
    for (int64_t column = first_column; column < last_column; column += group) {
      panels.Load(column, std::min(column + group, last_column), tile.vectors);
      for (const ColumnPanel& panel : panels) {
        for (int64_t i = 0; i < count; ++i) {
          const Strip& strip = strips[i];
          float* const sums = scratch.sums + (strip.first - chunk.first) * row_floats +
                              strip.height * (panel.first - first_column);
          tiles_.product[panel.vectors][strip.height](
              {strip.at, panel.at, depth, panel.step, nullptr, nullptr, sums, !begins});
          if (ends) Write({strip.first, strip.count, panel.first, panel.width, sums, panel.step});
        }
      }
    }
    d += depth;
  } while (d < s.depth);
}

// A few rows are bound by the weights' bytes, so the weights are read in place: some rows of them
// at a time, each in one long run.
void GroupedMatmulJob::RunFew(const RowChunk& chunk, int64_t first_column, int64_t last_column,
                              const WorkerScratch& scratch) const {
  const GroupedShape& s = args_.shape;
  for (int64_t r = 0; r < chunk.count; ++r) {
    float* const to = scratch.strips + r * s.depth;
    const int64_t row = RowOf(args_.gather, chunk.first + r, s.lhs_rows);
    if (row < 0) {
      std::fill(to, to + s.depth, 0.0f);
    } else {
      isa_.to_f32(args_.in_type, ElementAt(args_.lhs, row * s.depth, args_.in_type), s.depth, to);
    }
  }
  const int64_t columns = kFewFloats / chunk.count / kMaxLanes * kMaxLanes;
  for (int64_t column = first_column; column < last_column; column += columns) {
    const int64_t width = std::min(columns, last_column - column);
    std::fill(scratch.sums, scratch.sums + chunk.count * width, 0.0f);
    for (int64_t d = 0; d < s.depth; d += kFewDepth) {
      const int64_t at = (chunk.group * s.depth + d) * s.outputs + column;
      ffn_.add_rows({nullptr, std::min(kFewDepth, s.depth - d), chunk.count, scratch.strips + d,
                     s.depth, ElementAt(args_.rhs, at, args_.in_type), args_.in_type, s.outputs,
                     width, scratch.sums, width, kFewDepth});
    }
    Write({chunk.first, chunk.count, column, width, scratch.sums, width});
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

// Gives the number of strips.
int64_t GroupedMatmulJob::LoadStrips(const RowChunk& chunk, int64_t first_depth, int64_t depth,
                                     ProductShape tile, float* storage, Strip* strips) const {
  const GroupedShape& s = args_.shape;
  int64_t loaded = 0;
  for (int64_t first = 0; first < chunk.count; first += tile.rows) {
    const int64_t count = std::min<int64_t>(tile.rows, chunk.count - first);
    const void* rows[kMaxProductRows];
    for (int64_t r = 0; r < count; ++r) {
      const int64_t row = RowOf(args_.gather, chunk.first + first + r, s.lhs_rows);
      rows[r] =
          row < 0 ? nullptr : ElementAt(args_.lhs, row * s.depth + first_depth, args_.in_type);
    }
    const int64_t height = TileHeight(tiles_, tile.vectors, count);
    LoadStrip(isa_, args_.in_type, rows, count, height, depth, storage);
    strips[loaded++] = {chunk.first + first, count, height, storage};
    storage += StripFloats(height, depth);
  }
  return loaded;
}

void GroupedMatmulJob::Write(const Sums& sums) const {
  for (int64_t r = 0; r < sums.count; ++r) {
    const int64_t i = sums.first + r;
    float* row = sums.at + r * sums.stride;
    if (RowOf(args_.gather, i, args_.shape.lhs_rows) < 0) {
      std::fill(row, row + sums.width, 0.0f);
    } else if (args_.row_weights != nullptr) {
      const float weight = args_.row_weights[i];
      for (int64_t o = 0; o < sums.width; ++o) row[o] *= weight;
    }
  }
  return args_.scatter != nullptr ? Add(sums) : Store(sums);
}

void GroupedMatmulJob::Store(const Sums& sums) const {
  void* targets[kMaxProductRows];
  const int64_t row_bytes = args_.shape.outputs * SizeOf(args_.out_type);
  for (int64_t first = 0; first < sums.count; first += kMaxProductRows) {
    const int64_t count = std::min<int64_t>(sums.count - first, kMaxProductRows);
    for (int64_t r = 0; r < count; ++r) {
      targets[r] = static_cast<char*>(args_.out) + (sums.first + first + r) * row_bytes;
    }
    isa_.finish({sums.at + first * sums.stride, sums.stride, count, sums.width, nullptr, targets,
                 sums.column, args_.out_type, Activation::kNone});
  }
}

void GroupedMatmulJob::Add(const Sums& sums) const {
  for (int64_t r = 0; r < sums.count; ++r) {
    const int64_t i = sums.first + r, row = RowOf(args_.scatter, i, args_.shape.out_rows);
    if (row < 0 || RowOf(args_.gather, i, args_.shape.lhs_rows) < 0) continue;
    const float* from = sums.at + r * sums.stride;
    float* target = sums_ + row * args_.shape.outputs + sums.column;
    for (int64_t o = 0; o < sums.width; ++o) target[o] += from[o];
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
