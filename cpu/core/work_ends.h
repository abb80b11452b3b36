#pragma once

#include <atomic>
#include <cstdint>

#include "cpu/core/work_counter.h"

namespace jaxsparse {

// Hands out the items [0, size): the first worker goes forward from the first item, the others
// backward from the last, so that a core works on the same part of the input and of the result in
// every call. No item is handed out twice: there are as many turns as items.
class WorkEnds {
 public:
  explicit WorkEnds(int64_t size) : size_(size), turns_(size) {}
  bool Next(int64_t worker, int64_t* item) {
    int64_t turn;
    if (!turns_.Next(&turn)) return false;
    *item = worker == 0 ? from_start_++ : size_ - ++from_end_;
    return true;
  }

 private:
  const int64_t size_;
  WorkCounter turns_;
  int64_t from_start_ = 0;  // items that the first worker took
  std::atomic<int64_t> from_end_ = 0;
};

}  // namespace jaxsparse
