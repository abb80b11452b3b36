// DepthSchedule: which steps of which output tiles a CTA sums, where K is long and its length known
// on the device only. All steps of all tiles, a tile's in a row, are cut into equal runs, one a
// worker. A tile that lies in one run is finished by its worker; of the others each worker leaves a
// part, and a later kernel adds a tile's parts in the order of the workers: no worker waits for
// another.
#pragma once

#include <cstdint>

namespace jaxsparse {

class DepthSchedule {
 public:
  struct Segment {
    int tile;
    int begin, end;  // steps
  };

  // `steps` of each of `tiles` tiles, for at most `most` workers.
  __device__ DepthSchedule(int tiles, int steps, int most)
      : steps_(steps), total_(static_cast<int64_t>(tiles) * steps) {
    const int64_t able = total_ / kLeastSteps;
    workers_ = static_cast<int>(able < 1 ? 1 : able < most ? able : most);
  }

  // The range of `worker`'s steps, counted over all tiles; empty past the last worker.
  __device__ int64_t Bound(int worker) const {
    return worker < workers_ ? total_ * worker / workers_ : total_;
  }

  // The worker that has step `at` < total.
  __device__ int WorkerOf(int64_t at) const {
    return static_cast<int>(((at + 1) * workers_ - 1) / total_);
  }

  __device__ int First(int tile) const { return WorkerOf(static_cast<int64_t>(tile) * steps_); }
  __device__ int Last(int tile) const {
    return WorkerOf(static_cast<int64_t>(tile + 1) * steps_ - 1);
  }

  // Where worker `worker` leaves its part of `tile`: no two pairs that occur share a place, since
  // from one part to the next the worker, the tile or both go up by one.
  __device__ static int Part(int worker, int tile) { return worker + tile; }

  __device__ int steps() const { return steps_; }

  // Visits the segments of one worker.
  class Walk {
   public:
    __device__ Walk(const DepthSchedule& schedule, int worker)
        : steps_(schedule.steps_), at_(schedule.Bound(worker)), stop_(schedule.Bound(worker + 1)) {}

    __device__ bool Next(Segment* s) {
      if (at_ >= stop_) return false;
      s->tile = static_cast<int>(at_ / steps_);
      s->begin = static_cast<int>(at_ - static_cast<int64_t>(s->tile) * steps_);
      const int64_t left = stop_ - at_;
      s->end = left < steps_ - s->begin ? s->begin + static_cast<int>(left) : steps_;
      at_ += s->end - s->begin;
      return true;
    }

   private:
    int steps_;
    int64_t at_, stop_;
  };

 private:
  static constexpr int kLeastSteps = 4;  // a worker, on average: below that parts cost more

  int steps_, workers_;
  int64_t total_;
};

}  // namespace jaxsparse
