// What the jobs of saturated layers share: tiles of images, a workspace a worker, a queue.
//
// A job derives from BoundedJob<itself> and has a `Worker` (pointers into the workspace), `Take`
// that carves one, and `RunTile` for the images [first, first + count).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "cpu/core/scratch.h"
#include "cpu/core/work_counter.h"
#include "cpu/kernels/bounded_layer.h"

namespace jaxsparse {

enum SegmentCode : uint8_t { kMixed = 0, kZero = 1, kUpper = 2 };

inline int64_t BoundedBlockUp(int64_t images) {
  return (images + kBoundedBlock - 1) / kBoundedBlock * kBoundedBlock;
}

template <typename Job>
class BoundedJob {
 public:
  // 0 when the scratch is too small to run at all.
  int64_t workers() const { return workers_; }

  void Run(int64_t worker) {
    const Job& job = static_cast<const Job&>(*this);
    ScratchCarver carver(scratch_);
    auto mine = job.Take(carver);
    for (int64_t w = 0; w < worker; ++w) mine = job.Take(carver);
    int64_t item;
    while (items_->Next(&item)) {
      job.RunTile(item * tile_, std::min(tile_, batch_ - item * tile_), mine);
    }
  }

 protected:
  // The widest tile of which every worker has one; the narrowest still runs on a small scratch.
  // Call it when `Take` knows its sizes.
  void Plan(int64_t batch, void* scratch, int64_t scratch_bytes, int64_t pool_workers) {
    batch_ = batch;
    scratch_ = scratch;
    const int64_t share = BoundedBlockUp((batch + pool_workers - 1) / pool_workers);
    for (int64_t workers = pool_workers; workers > 0 && workers_ == 0; --workers) {
      for (tile_ = std::min(kMaxTile, share); tile_ > 0; tile_ -= kBoundedBlock) {
        ScratchCarver carver(nullptr);
        static_cast<const Job&>(*this).Take(carver);
        const int64_t slack = static_cast<int64_t>(ScratchCarver::kAlign);
        if (workers * carver.used() + slack > scratch_bytes) continue;
        workers_ = workers;
        break;
      }
    }
    const int64_t items = tile_ > 0 ? (batch + tile_ - 1) / tile_ : 0;
    items_.emplace(items);
    workers_ = std::min(workers_, std::max<int64_t>(items, 1));
  }

  int64_t tile() const { return tile_; }

 private:
  static constexpr int64_t kMaxTile = 512;
  int64_t batch_ = 0, workers_ = 0, tile_ = 0;
  void* scratch_ = nullptr;
  std::optional<WorkCounter> items_;
};

}  // namespace jaxsparse
