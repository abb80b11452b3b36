#include "cpu/kernels/sparse_ffn/product.h"

#include <algorithm>
#include <new>

#include "cpu/core/scratch.h"
#include "cpu/kernels/sparse_ffn/lists.h"

namespace jaxsparse {
namespace {

constexpr int64_t kMostRows = 256, kPanel = 64, kMaxWorkers = 64;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// An item's lists: those of row r begin at r * depth; and a row as floats.
struct Lists {
  Lists(ScratchCarver& carver, int64_t rows, int64_t depth)
      : row(carver.Take<float>(depth)),
        found(carver.Take<int64_t>(rows)),
        values(carver.Take<float>(Checked(rows) * depth)),
        indices(carver.Take<int32_t>(Checked(rows) * depth)) {}

  float* row;
  int64_t* found;
  float* values;
  int32_t* indices;
};

}  // namespace

FfnProductJob::FfnProductJob(const FfnProductArgs& args, int64_t pool_workers)
    : a_(args),
      rows_(std::clamp<int64_t>(CeilDiv(args.rows, 2 * pool_workers), 1, kMostRows)),
      items_(CeilDiv(args.rows, rows_)) {
  ScratchCarver size(nullptr);
  Lists(size, rows_, a_.depth);
  bytes_ = (size.used() + ScratchCarver::kAlign).or_max();
  const int64_t items = CeilDiv(a_.rows, rows_);
  const int64_t workers = std::clamp<int64_t>(items, 1, std::min(pool_workers, kMaxWorkers));
  const Checked bytes = Checked(bytes_) * workers;
  scratch_.reset(new (std::nothrow) std::byte[static_cast<size_t>(bytes.or_max())]);
  if (scratch_ != nullptr) workers_ = workers;
}

void FfnProductJob::Run(int64_t worker) {
  for (int64_t item; items_.Next(&item);) RunRows(item, scratch_.get() + worker * bytes_);
}

void FfnProductJob::RunRows(int64_t item, std::byte* scratch) const {
  ScratchCarver carver(scratch);
  const Lists lists(carver, rows_, a_.depth);
  const int64_t first = item * rows_, rows = std::min(rows_, a_.rows - first);
  const int64_t size = SizeOf(a_.type);
  for (int64_t r = 0; r < rows; ++r) {
    const std::byte* const from =
        static_cast<const std::byte*>(a_.a) + (first + r) * a_.depth * size;
    int32_t* const indices = lists.indices + r * a_.depth;
    float* const values = lists.values + r * a_.depth;
    const int64_t found = ListNonZero(from, a_.type, a_.depth, indices);
    lists.found[r] = found;
    isa_.load(from, a_.type, a_.depth, lists.row);
    for (int64_t i = 0; i < found; ++i) values[i] = lists.row[indices[i]];
  }
  float sums[kPanel];
  for (int64_t column = 0; column < a_.outputs; column += kPanel) {
    const int64_t columns = std::min(kPanel, a_.outputs - column);
    const std::byte* const b = static_cast<const std::byte*>(a_.b) + column * size;
    for (int64_t r = 0; r < rows; ++r) {
      std::fill(sums, sums + columns, 0.0f);
      isa_.add_rows({lists.indices + r * a_.depth, lists.found[r], 1, lists.values + r * a_.depth,
                     0, b, a_.type, a_.outputs, columns, sums, 0});
      const int64_t at = (first + r) * a_.outputs + column;
      isa_.store(sums, a_.type, columns, static_cast<std::byte*>(a_.out) + at * size);
    }
  }
}

}  // namespace jaxsparse
