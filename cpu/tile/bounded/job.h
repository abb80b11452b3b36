// What the jobs of saturated layers share: tiles of images, a workspace a worker, a queue.
//
// A job derives from BoundedJob<itself> and has a `Worker` (pointers into the workspace), `Take`
// that carves one, and `RunTile` for the images [first, first + count).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "contracts/enums.gen.h"
#include "cpu/core/scratch.h"
#include "cpu/core/work_counter.h"
#include "cpu/recorder/codes.h"
#include "cpu/tile/bounded/isa.h"

namespace jaxsparse {

inline int64_t BoundedBlockUp(int64_t images) {
  return (images + kBoundedBlock - 1) / kBoundedBlock * kBoundedBlock;
}

template <typename Job>
class BoundedJob {
 public:
  // Workspace for `workers` workers, each with as wide a tile as it takes; less still runs.
  template <typename Args>
  static int64_t ScratchBytes(Args args, int64_t workers) {
    args.scratch = nullptr;
    args.scratch_bytes = std::numeric_limits<int64_t>::max();
    const Job job(args, workers);
    ScratchCarver carver(nullptr);
    job.Take(carver);
    return (carver.used() * workers + ScratchCarver::kAlign).or_max();
  }

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
  // The widest tile of which every worker has one, and whose two generations of `width` values a
  // column fit the worker's share of the cache; the narrowest still runs on a small scratch. Call
  // it when `Take` knows its sizes.
  void Plan(int64_t batch, int64_t width, void* scratch, int64_t scratch_bytes,
            int64_t pool_workers) {
    batch_ = batch;
    scratch_ = scratch;
    const int64_t share = BoundedBlockUp((batch + pool_workers - 1) / pool_workers);
    const int64_t cached = kStateBytes / (8 * std::max<int64_t>(width, 1)) / kBoundedBlock;
    const int64_t most = std::max<int64_t>(cached, 1) * kBoundedBlock;
    for (int64_t workers = pool_workers; workers > 0 && workers_ == 0; --workers) {
      for (tile_ = std::min({kMaxTile, most, share}); tile_ > 0; tile_ -= kBoundedBlock) {
        ScratchCarver carver(nullptr);
        static_cast<const Job&>(*this).Take(carver);
        if (!(carver.used() * workers + ScratchCarver::kAlign <= scratch_bytes)) continue;
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
  static constexpr int64_t kStateBytes = 1 << 20;  // of activations that a worker keeps in cache
  int64_t batch_ = 0, workers_ = 0, tile_ = 0;
  void* scratch_ = nullptr;
  std::optional<WorkCounter> items_;
};

}  // namespace jaxsparse
