// Work sharing on XLA's own thread pool. The caller takes a share, so a small job never waits for a
// wake-up, and a worker that comes when all is handed out is not waited for; no thread blocks
// longer than kPatience: after that the returned future becomes ready when the last worker is done.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "cpu/core/work_gate.h"
#include "xla/ffi/api/ffi.h"

namespace jaxsparse {

inline int64_t PoolWorkers(const xla::ffi::ThreadPool& pool) {
  return std::max<int64_t>(1, pool.num_threads());
}

// How long a caller that is done looks whether the others are, before it leaves the result to the
// last of them: a thread that waits for a future sleeps, and waking up takes 5 to 50 us.
constexpr std::chrono::microseconds kPatience{50};

inline void WaitBriefly(const WorkGate& gate) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!gate.Alone() && std::chrono::steady_clock::now() < end) {
  }
}

// Calls job->Run(worker) for worker 0 and, concurrently, for those in [1, workers) that start while
// there is work left. `Run` pulls work until none is left: it must not throw, nor depend on another
// worker having started.
template <typename Job>
xla::ffi::Future RunWorkers(xla::ffi::ThreadPool& pool, int64_t workers, std::shared_ptr<Job> job) {
  xla::ffi::CountDownPromise done(1);
  xla::ffi::Future future(done);
  const auto gate = std::make_shared<WorkGate>();
  for (int64_t worker = 1; worker < workers; ++worker) {
    pool.Schedule([done, job, gate, worker]() mutable {
      if (!gate->Enter()) return;
      job->Run(worker);
      gate->Close();
      if (gate->Leave()) done.CountDown();
    });
  }
  job->Run(0);
  gate->Close();
  WaitBriefly(*gate);
  if (gate->Leave()) done.CountDown();
  return future;
}

}  // namespace jaxsparse
