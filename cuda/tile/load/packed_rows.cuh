// A layer's packed rows as the kernels read them: four entries at a time, indices of 16 or 32 bits.
//
// A unit is a row, or a bundle: sixteen rows that have the same inputs, with one list of indices
// and, entry by entry, the sixteen rows' weights side by side.
#pragma once

#include <cstdint>

namespace jaxsparse {

constexpr uint32_t kBundle = 16;

struct Quad {
  uint32_t index[4];
  float weight[4];
};

// One layer of a packed stack. Units are multiples of four entries, so every load is aligned; a
// start that is not a multiple of four, or negative, is data that nothing packed, and is cut.
template <typename Index>
struct LayerView {
  const int32_t* starts;  // [units + 1]
  const Index* indices;
  const float* weights;  // [entries of a row], or [entries of a bundle][kBundle]
  const float* bias;
  uint32_t last;     // the largest index that may be read
  uint32_t entries;  // that may be read: a multiple of four

  __device__ uint32_t Begin(uint32_t unit) const {
    return min(static_cast<uint32_t>(__ldg(starts + unit)), entries) & ~3u;
  }
  __device__ uint32_t End(uint32_t unit) const {
    return min(static_cast<uint32_t>(__ldg(starts + unit + 1)), entries);
  }
  __device__ void LoadIndices(uint32_t entry, uint32_t (&index)[4]) const {
    if constexpr (sizeof(Index) == 2) {
      const ushort4 i = __ldg(reinterpret_cast<const ushort4*>(indices + entry));
      index[0] = i.x, index[1] = i.y, index[2] = i.z, index[3] = i.w;
    } else {
      const uint4 i = __ldg(reinterpret_cast<const uint4*>(indices + entry));
      index[0] = i.x, index[1] = i.y, index[2] = i.z, index[3] = i.w;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) index[k] = min(index[k], last);
  }
  __device__ Quad Load(uint32_t entry) const {
    Quad quad;
    LoadIndices(entry, quad.index);
    const float4 w = __ldg(reinterpret_cast<const float4*>(weights + entry));
    quad.weight[0] = w.x, quad.weight[1] = w.y, quad.weight[2] = w.z, quad.weight[3] = w.w;
    return quad;
  }
  // A bundle's sixteen weights of an entry, four by four.
  __device__ const float4* WeightsOf(uint32_t entry) const {
    return reinterpret_cast<const float4*>(weights + int64_t{kBundle} * entry);
  }
};

}  // namespace jaxsparse
