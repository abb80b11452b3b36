// Frozen weights times few rows of x, one instruction set a unit: an output is a dot product of its
// entries with what they name of x.
//
// Floor: six bytes an entry, read once and in order; three loads and a multiply-add (one load more
// a row) from the first-level cache. A gather of sixteen inputs takes no less than sixteen loads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/tile/pruned/isa.h"

namespace {

using jaxsparse::PrunedDots;

// Four sums in all: with fewer an entry waits for the one before it.
template <int kRows>
void DotsOf(const PrunedDots& job, const float* x, float* sums) {
  constexpr int kTurns = 4 / kRows > 1 ? 4 / kRows : 1;
  const int64_t last = job.inputs - 1;
  for (int64_t o = job.first; o < job.first + job.count; ++o) {
    int64_t e = std::max<int64_t>(job.starts[o], 0);
    const int64_t end = std::min<int64_t>(job.ends[o], job.entries);
    float sum[kTurns][kRows] = {};
    const auto add = [&](int64_t entry, float* to) {
      const float weight = job.values[entry];
      const int64_t input = std::min<int64_t>(job.inputs_of[entry], last);
      for (int r = 0; r < kRows; ++r) to[r] += weight * x[r * job.inputs + input];
    };
    for (; e + kTurns <= end; e += kTurns) {
      for (int t = 0; t < kTurns; ++t) add(e + t, sum[t]);
    }
    for (; e < end; ++e) add(e, sum[0]);
    for (int r = 0; r < kRows; ++r) {
      float total = sum[0][r];
      for (int t = 1; t < kTurns; ++t) total += sum[t][r];
      sums[r * job.sums_stride + o] = total;
    }
  }
}

void MultiplyDots(const PrunedDots& job) {
  static_assert(jaxsparse::kPrunedDots == 4, "a case each");
  switch (job.rows) {
    case 1:
      return DotsOf<1>(job, job.x, job.sums);
    case 2:
      return DotsOf<2>(job, job.x, job.sums);
    case 3:
      return DotsOf<3>(job, job.x, job.sums);
    case 4:
      return DotsOf<4>(job, job.x, job.sums);
  }
}

}  // namespace
