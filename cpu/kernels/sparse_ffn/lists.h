// The activations of a token that are not zero, as a list.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "cpu/core/dtype.h"

namespace jaxsparse {

// The entries [0, count) of a row that are not zero, in order: their places in `rows`. NaN is not
// zero. Runs of zeros cost a look at sixteen entries together. Returns how many there are.
template <typename T>
int64_t ListNonZero(const T* from, int64_t count, int32_t* rows) {
  constexpr int64_t kTogether = 16;
  // All bits but the sign: 0 for both zeros alone.
  const auto magnitude = [](T value) {
    std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t> bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return static_cast<decltype(bits)>(bits << 1);
  };
  int64_t found = 0, i = 0;
  const auto list = [&](int64_t at) {
    rows[found] = static_cast<int32_t>(at);
    found += magnitude(from[at]) != 0;
  };
  for (; i + kTogether <= count; i += kTogether) {
    decltype(magnitude(T{})) any = 0;
    for (int64_t j = 0; j < kTogether; ++j) any |= magnitude(from[i + j]);
    if (any == 0) continue;
    for (int64_t j = 0; j < kTogether; ++j) list(i + j);
  }
  for (; i < count; ++i) list(i);
  return found;
}

inline int64_t ListNonZero(const void* from, DType type, int64_t count, int32_t* rows) {
  if (type == DType::kF32) return ListNonZero(static_cast<const float*>(from), count, rows);
  return ListNonZero(static_cast<const uint16_t*>(from), count, rows);
}

// Of `found` listed entries of `values`, in order, the `most` that are largest in absolute value;
// of equal ones the first. NaN counts as infinite. `sizes` has room for `found`.
inline int64_t KeepLargest(const float* values, int64_t found, int64_t most, int32_t* rows,
                           float* sizes) {
  if (found <= most) return found;
  const auto size_of = [&](int32_t row) {
    const float v = values[row];
    return std::isnan(v) ? std::numeric_limits<float>::infinity() : std::fabs(v);
  };
  for (int64_t i = 0; i < found; ++i) sizes[i] = size_of(rows[i]);
  std::nth_element(sizes, sizes + (most - 1), sizes + found,
                   [](float a, float b) { return a > b; });
  const float least = sizes[most - 1];
  int64_t above = 0, kept = 0;
  for (int64_t i = 0; i < found; ++i) above += size_of(rows[i]) > least;
  int64_t equal = most - above;
  for (int64_t i = 0; i < found; ++i) {
    const float size = size_of(rows[i]);
    if (size > least || (size == least && equal-- > 0)) rows[kept++] = rows[i];
  }
  return kept;
}

}  // namespace jaxsparse
