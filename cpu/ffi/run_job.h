// A job on the pool of a call, or the error that its workspace is too small.
#pragma once

#include <memory>
#include <string>

#include "contracts/call.h"
#include "cpu/core/workers.h"

namespace jaxsparse {

// `Job` says by workers() == 0 that the workspace is too small to run at all.
template <class Job, class Args>
xla::ffi::Future RunJob(const char* handler, xla::ffi::ThreadPool& pool, const Args& args) {
  auto job = std::make_shared<Job>(args, PoolWorkers(pool));
  if (job->workers() == 0) {
    return contract::Failed(std::string(handler) + ": scratch has " +
                            std::to_string(args.scratch_bytes) + " bytes: too few to run");
  }
  return RunWorkers(pool, job->workers(), job);
}

}  // namespace jaxsparse
