// Who still works on a job, for workers that may come late.
#pragma once

#include <atomic>
#include <cstdint>

namespace jaxsparse {

// Counts who works on a job, the caller first. Everybody pulls work until none is left, so when the
// first one leaves all of it has been handed out: the gate closes, and who comes later stays out.
class WorkGate {
 public:
  // False: there is nothing left to do.
  bool Enter() {
    uint32_t state = state_.load(std::memory_order_relaxed);
    do {
      if (state & kClosed) return false;
    } while (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire));
    return true;
  }

  // Once per worker, before it leaves.
  void Close() { state_.fetch_or(kClosed, std::memory_order_relaxed); }
  bool Leave() { return state_.fetch_sub(1, std::memory_order_acq_rel) == (kClosed | 1); }
  // Whether everybody else has left a closed gate.
  bool Alone() const { return state_.load(std::memory_order_acquire) == (kClosed | 1); }

 private:
  static constexpr uint32_t kClosed = 1u << 31;
  std::atomic<uint32_t> state_{1};
};

}  // namespace jaxsparse
