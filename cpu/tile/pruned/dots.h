// Frozen weights times one row of x, one instruction set a unit: an output is the dot product
// of its kept weights with their inputs.
//
// Floor: six bytes an entry, read once and in order; three loads and a multiply-add from the
// first-level cache. A gather of sixteen inputs takes no less time than sixteen loads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/tile/pruned/isa.h"

namespace {

using jaxsparse::PrunedDots;

// Sums that entries are added to in turn: with a single one, each addition would wait for the last.
constexpr int kDotTurns = 4;

void MultiplyDots(const PrunedDots& job) {
  const int64_t last = job.inputs - 1;
  for (int64_t o = job.first; o < job.first + job.count; ++o) {
    int64_t e = std::max<int64_t>(job.starts[o], 0);
    const int64_t end = std::min<int64_t>(job.ends[o], job.entries);
    float sum[kDotTurns] = {};
    const auto product = [&](int64_t entry) {
      return job.values[entry] * job.x[std::min<int64_t>(job.columns[entry], last)];
    };
    for (; e + kDotTurns <= end; e += kDotTurns) {
      for (int t = 0; t < kDotTurns; ++t) sum[t] += product(e + t);
    }
    for (; e < end; ++e) sum[0] += product(e);
    job.sums[o] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }
}

}  // namespace
