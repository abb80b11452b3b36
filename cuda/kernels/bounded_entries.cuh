// A layer's packed rows as the kernels read them: four entries at a time, indices of 16 or 32 bits.
#pragma once

#include <cstdint>

namespace jaxsparse {

struct Quad {
  uint32_t index[4];
  float weight[4];
};

// One layer of a packed stack. Rows are multiples of four entries, so every load is aligned.
template <typename Index>
struct LayerView {
  const int32_t* starts;  // [distinct + 1]
  const Index* indices;
  const float* weights;
  const float* bias;
  uint32_t last;     // the largest index that may be read
  uint32_t entries;  // that may be read

  __device__ uint32_t Begin(uint32_t row) const { return __ldg(starts + row); }
  __device__ uint32_t End(uint32_t row) const {
    return min(static_cast<uint32_t>(__ldg(starts + row + 1)), entries);
  }
  __device__ Quad Load(uint32_t entry) const {
    Quad quad;
    if constexpr (sizeof(Index) == 2) {
      const ushort4 i = __ldg(reinterpret_cast<const ushort4*>(indices + entry));
      quad.index[0] = i.x, quad.index[1] = i.y, quad.index[2] = i.z, quad.index[3] = i.w;
    } else {
      const uint4 i = __ldg(reinterpret_cast<const uint4*>(indices + entry));
      quad.index[0] = i.x, quad.index[1] = i.y, quad.index[2] = i.z, quad.index[3] = i.w;
    }
    const float4 w = __ldg(reinterpret_cast<const float4*>(weights + entry));
    quad.weight[0] = w.x, quad.weight[1] = w.y, quad.weight[2] = w.z, quad.weight[3] = w.w;
#pragma unroll
    for (int k = 0; k < 4; ++k) quad.index[k] = min(quad.index[k], last);
    return quad;
  }
};

}  // namespace jaxsparse
