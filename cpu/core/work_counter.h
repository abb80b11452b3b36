#pragma once

#include <atomic>
#include <cstdint>

namespace jaxsparse {

// Hands out the items [0, size) one at a time. Items cost different amounts, so they are pulled,
// not dealt.
class WorkCounter {
 public:
  explicit WorkCounter(int64_t size) : size_(size) {}
  bool Next(int64_t* item) {
    *item = next_.fetch_add(1, std::memory_order_relaxed);
    return *item < size_;
  }

 private:
  std::atomic<int64_t> next_{0};
  const int64_t size_;
};

}  // namespace jaxsparse
