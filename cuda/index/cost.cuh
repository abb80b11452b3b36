// What a variant costs on a list of a known length: the rows that a choice on the device is made
// from.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace jaxsparse {

inline constexpr int kCostColumns = 5;

// Row (a, b, list, wave, per_wave) at `count` entries: a + b * count + wave * ceil(count /
// per_wave), without the waves where per_wave < 1.
__device__ inline float VariantCost(const float* row, int32_t count) {
  const float n = static_cast<float>(count), cost = fmaf(row[1], n, row[0]);
  if (!(row[4] >= 1.0f)) return cost;
  const uint32_t per_wave = __float2uint_rz(row[4]);
  const uint32_t waves = count > 0 ? (static_cast<uint32_t>(count) - 1) / per_wave + 1 : 0;
  return fmaf(row[3], static_cast<float>(waves), cost);
}

}  // namespace jaxsparse
