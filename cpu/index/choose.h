// Which of several variants costs least, given how many tiles each has to visit.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace jaxsparse::cpu {

// costs[variants, 3] = (a, b, list): a + b * count[list], or a where it names none of the `lists`;
// infinity where that list overflowed. The first of the least; 0 when all are infinite or NaN.
inline int32_t ChooseVariant(const float* costs, int64_t variants, const int32_t* count,
                             const bool* overflow, int64_t lists) {
  float best = std::numeric_limits<float>::infinity();
  int32_t choice = 0;
  for (int64_t v = 0; v < variants; ++v) {
    const float* row = costs + 3 * v;
    float cost = row[0];
    for (int64_t t = 0; t < lists; ++t) {
      if (row[2] != static_cast<float>(t)) continue;
      cost = overflow[t] ? std::numeric_limits<float>::infinity()
                         : std::fma(row[1], static_cast<float>(count[t]), cost);
    }
    if (cost < best) {
      best = cost;
      choice = static_cast<int32_t>(v);
    }
  }
  return choice;
}

}  // namespace jaxsparse::cpu
