// Which of several variants costs least, given how many tiles each has to visit.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace jaxsparse::cpu {

// costs[variants, 5] = (a, b, list, wave, per_wave): a + b * n + wave * ceil(n / per_wave) for n =
// count[list], without the waves where per_wave < 1, or a alone where it names none of the `lists`;
// infinity where that list overflowed. The first of the least; 0 when all are infinite or NaN.
inline int32_t ChooseVariant(const float* costs, int64_t variants, const int32_t* count,
                             const bool* overflow, int64_t lists) {
  constexpr float kLongest = 1 << 30;  // a wave of which holds every list
  float best = std::numeric_limits<float>::infinity();
  int32_t choice = 0;
  for (int64_t v = 0; v < variants; ++v) {
    const float* row = costs + 5 * v;
    float cost = row[0];
    for (int64_t t = 0; t < lists; ++t) {
      if (row[2] != static_cast<float>(t)) continue;
      cost = std::fma(row[1], static_cast<float>(count[t]), cost);
      if (row[4] >= 1.0f) {
        const int64_t per_wave = static_cast<int64_t>(std::min(row[4], kLongest));
        const int64_t waves = (int64_t{count[t]} + per_wave - 1) / per_wave;
        cost = std::fma(row[3], static_cast<float>(waves), cost);
      }
      if (overflow[t]) cost = std::numeric_limits<float>::infinity();
    }
    if (cost < best) {
      best = cost;
      choice = static_cast<int32_t>(v);
    }
  }
  return choice;
}

}  // namespace jaxsparse::cpu
