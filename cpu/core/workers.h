// Work sharing on XLA's own thread pool. The caller takes a share, so a small job never waits for a
// wake-up; nobody blocks: the returned future becomes ready when the last worker is done.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "xla/ffi/api/ffi.h"

namespace jaxsparse {

inline int64_t PoolWorkers(const xla::ffi::ThreadPool& pool) {
  return std::max<int64_t>(1, pool.num_threads());
}

// Calls job->Run(worker) once for each worker in [0, workers), concurrently. `Run` must not throw,
// nor depend on another worker having started.
template <typename Job>
xla::ffi::Future RunWorkers(xla::ffi::ThreadPool& pool, int64_t workers, std::shared_ptr<Job> job) {
  xla::ffi::CountDownPromise done(workers);
  xla::ffi::Future future(done);
  for (int64_t worker = 1; worker < workers; ++worker) {
    pool.Schedule([done, job, worker]() mutable {
      job->Run(worker);
      done.CountDown();
    });
  }
  job->Run(0);
  done.CountDown();
  return future;
}

}  // namespace jaxsparse
