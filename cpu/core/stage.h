// Items of a job that must all be done before any worker goes on.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "cpu/core/work_counter.h"

namespace jaxsparse {

// A worker that finds nothing left waits for the items that others still hold. They were pulled, so
// they run: nothing depends on a worker that has not started.
class Stage {
 public:
  explicit Stage(int64_t size) : items_(size), size_(size) {}

  template <typename Work>
  void Run(const Work& work) {
    for (int64_t item; items_.Next(&item);) {
      work(item);
      done_.fetch_add(1, std::memory_order_release);
    }
    while (done_.load(std::memory_order_acquire) < size_) std::this_thread::yield();
  }

 private:
  WorkCounter items_;
  std::atomic<int64_t> done_{0};
  const int64_t size_;
};

}  // namespace jaxsparse
