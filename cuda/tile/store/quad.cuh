// Quads of lanes: the four that hold one row of a wgmma accumulator.
#pragma once

#include <cstdint>

namespace jaxsparse {

// Lane q of each quad ends with the four values that the quad's lanes held at index q.
__device__ __forceinline__ void TransposeQuad(uint32_t (&v)[4]) {
  const int q = threadIdx.x % 4;
#pragma unroll
  for (int distance = 1; distance <= 2; distance *= 2) {
    const bool upper = q & distance;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & distance) continue;
      const uint32_t sent = upper ? v[i] : v[i + distance];
      const uint32_t received = __shfl_xor_sync(0xFFFFFFFFu, sent, distance);
      const uint32_t low = upper ? received : v[i];
      v[i + distance] = upper ? v[i + distance] : received;
      v[i] = low;
    }
  }
}

}  // namespace jaxsparse
