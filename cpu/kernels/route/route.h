// Stable counting sort of expert assignments: one list.
#pragma once

#include <cstdint>

namespace jaxsparse {

// order[i]: the assignment that sorted row i serves; source[i] = order[i] / top_k; sizes[e]: rows
// of expert e. An id outside [0, experts) is sorted to the end, in order, and counted nowhere.
// `next` is workspace of experts + 1 entries.
inline void RouteList(const int32_t* ids, int64_t assignments, int64_t experts, int64_t top_k,
                      int32_t* order, int32_t* source, int32_t* sizes, int32_t* next) {
  const auto bucket = [&](int64_t i) {
    return ids[i] >= 0 && ids[i] < experts ? static_cast<int64_t>(ids[i]) : experts;
  };
  for (int64_t e = 0; e <= experts; ++e) next[e] = 0;
  for (int64_t i = 0; i < assignments; ++i) ++next[bucket(i)];
  int32_t start = 0;
  for (int64_t e = 0; e <= experts; ++e) {
    const int32_t size = next[e];
    if (e < experts) sizes[e] = size;
    next[e] = start;
    start += size;
  }
  for (int64_t i = 0; i < assignments; ++i) {
    const int32_t row = next[bucket(i)]++;
    order[row] = static_cast<int32_t>(i);
    source[row] = static_cast<int32_t>(i / top_k);
  }
}

}  // namespace jaxsparse
