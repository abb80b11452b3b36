#include "cpu/kernels/grouped_matmul/drhs_job.h"

#include <algorithm>

namespace jaxsparse {
namespace {

constexpr int64_t kMaxWorkers = 64;
constexpr int64_t kBlockRows = 256;
constexpr int64_t kSlice = 96;  // columns of lhs in an item
constexpr int64_t kColumns = 256;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

GroupedDrhsJob::WorkerScratch GroupedDrhsJob::TakeWorker(ScratchCarver& carver) {
  WorkerScratch scratch;
  scratch.x_rows = carver.Take<const float*>(kBlockRows);
  scratch.gy_rows = carver.Take<const float*>(kBlockRows);
  scratch.x = carver.Take<float>(kBlockRows * kSlice);
  scratch.gy = carver.Take<float>(kBlockRows * kColumns);
  scratch.sums = carver.Take<float>(kSlice * kColumns);
  return scratch;
}

int64_t GroupedDrhsJob::ScratchBytes(const GroupedShape& shape, int64_t workers) {
  ScratchCarver carver(nullptr);
  GroupSpans spans(shape.groups, carver);
  ScratchCarver worker(nullptr);
  TakeWorker(worker);
  return (carver.used() + worker.used() * workers + ScratchCarver::kAlign).or_max();
}

GroupedDrhsJob::GroupedDrhsJob(const GroupedDrhsArgs& args, int64_t pool_workers)
    : args_(args),
      isa_(MaskedConvIsa()),
      carver_(args.scratch),
      spans_(args.shape.groups, carver_),
      slices_(CeilDiv(args.shape.depth, kSlice)) {
  const int64_t fixed = ScratchBytes(args.shape, 0), each = ScratchBytes(args.shape, 1) - fixed;
  if (args.scratch_bytes < fixed || each < 1) return;
  workers_ = std::min({pool_workers, kMaxWorkers, (args.scratch_bytes - fixed) / each});
  if (workers_ < 1) {
    workers_ = 0;
    return;
  }
  spans_.Build(args.sizes, args.shape.sorted_rows, kBlockRows, 1);
  const int64_t items = args.shape.groups * slices_;
  workers_ = std::clamp<int64_t>(items, 1, workers_);
  items_.emplace(items);
}

GroupedDrhsJob::WorkerScratch GroupedDrhsJob::ScratchOf(int64_t worker) const {
  ScratchCarver carver = carver_;
  WorkerScratch scratch = {};
  for (int64_t w = 0; w <= worker; ++w) scratch = TakeWorker(carver);
  return scratch;
}

void GroupedDrhsJob::Run(int64_t worker) {
  const WorkerScratch scratch = ScratchOf(worker);
  for (int64_t item; items_->Next(&item);) {
    const int64_t first = item % slices_ * kSlice;
    RunSlice(item / slices_, first, std::min(first + kSlice, args_.shape.depth), scratch);
  }
}

void GroupedDrhsJob::RunSlice(int64_t group, int64_t first_depth, int64_t last_depth,
                              const WorkerScratch& scratch) const {
  const GroupedShape& s = args_.shape;
  const int64_t depth = last_depth - first_depth;
  const int64_t begin = spans_.first(group), end = begin + spans_.size(group);
  void* targets[kSlice];
  for (int64_t d = 0; d < depth; ++d) {
    const int64_t at = ((group * s.depth + first_depth) + d) * s.outputs;
    targets[d] = static_cast<char*>(args_.drhs) + at * SizeOf(args_.out_type);
  }
  int64_t gy_of[kBlockRows], count = 0;
  for (int64_t first = 0; first < s.outputs; first += kColumns) {
    const int64_t columns = std::min(s.outputs - first, kColumns);
    std::fill_n(scratch.sums, depth * kColumns, 0.0f);
    for (int64_t row = begin; row < end; row += kBlockRows) {
      if (first == 0 || spans_.size(group) > kBlockRows) {
        count = LoadBlock(row, std::min(end - row, kBlockRows), first_depth, depth, gy_of, scratch);
      }
      LoadColumns(gy_of, count, first, columns, scratch);
      AddBlock(count, depth, columns, scratch);
    }
    isa_.finish({scratch.sums, kColumns, depth, columns, nullptr, targets, first, args_.out_type,
                 Activation::kNone});
  }
}

// Loads the slice of the rows that exist on both sides; gives their number and their rows of gy.
int64_t GroupedDrhsJob::LoadBlock(int64_t first, int64_t count, int64_t first_depth, int64_t depth,
                                  int64_t* gy_of, const WorkerScratch& scratch) const {
  const GroupedShape& s = args_.shape;
  int64_t loaded = 0;
  for (int64_t i = first; i < first + count; ++i) {
    const int64_t from = RowOf(args_.gather, i, s.lhs_rows),
                  to = RowOf(args_.scatter, i, s.out_rows);
    if (from < 0 || to < 0) continue;
    float* x = scratch.x + loaded * kSlice;
    isa_.to_f32(args_.type, ElementAt(args_.lhs, from * s.depth + first_depth, args_.type), depth,
                x);
    if (args_.row_weights != nullptr) {
      const float weight = args_.row_weights[i];
      for (int64_t d = 0; d < depth; ++d) x[d] *= weight;
    }
    scratch.x_rows[loaded] = x;
    gy_of[loaded++] = to;
  }
  return loaded;
}

void GroupedDrhsJob::LoadColumns(const int64_t* gy_of, int64_t count, int64_t first,
                                 int64_t columns, const WorkerScratch& scratch) const {
  for (int64_t p = 0; p < count; ++p) {
    const int64_t from = gy_of[p] * args_.shape.outputs + first;
    float* row = scratch.gy + p * kColumns;
    isa_.to_f32(args_.type, ElementAt(args_.gy, from, args_.type), columns, row);
    scratch.gy_rows[p] = row;
  }
}

void GroupedDrhsJob::AddBlock(int64_t count, int64_t depth, int64_t columns,
                              const WorkerScratch& scratch) const {
  const int64_t most = isa_.wide_file ? 12 : 6;
  for (int64_t o = 0; o < columns;) {
    const int vectors = static_cast<int>(std::min<int64_t>((columns - o) / isa_.lanes, 2));
    const int64_t width = vectors > 0 ? vectors * isa_.lanes : columns - o;
    for (int64_t d = 0; d < depth;) {
      int64_t rows = std::min(depth - d, most);
      while (isa_.dkernel[vectors][rows] == nullptr) --rows;
      isa_.dkernel[vectors][rows]({scratch.x_rows, scratch.gy_rows, count, d, o, width,
                                   scratch.sums + d * kColumns + o, kColumns});
      d += rows;
    }
    o += width;
  }
}

}  // namespace jaxsparse
