// What keeps NaN and infinities to the rows that attend to them. A product over positions adds up
// 0 * x for a position that does not count, which is NaN where x is not finite. Where a tile counts
// in part only, such elements are added to the sums of the rows that attend to them, and become 0
// before the product.
#pragma once

#include "cuda/kernels/sparse_attention/mma/bits.cuh"
#include "cuda/kernels/sparse_attention/mma/operands.cuh"
#include "cuda/kernels/sparse_attention/mma/registers.cuh"

namespace jaxsparse {

// The exponent of every element of 4 bytes.
template <class T>
inline constexpr uint32_t kExponents = 0x7F800000u;  // float32
template <>
inline constexpr uint32_t kExponents<__nv_bfloat16> = 0x7F807F80u;
template <>
inline constexpr uint32_t kExponents<__half> = 0x7C007C00u;

// The elements of 4 bytes that are not finite; the others become 0.
template <class T>
__device__ __forceinline__ uint32_t NotFinite(uint32_t v) {
  constexpr uint32_t kAll = kExponents<T>;
  if constexpr (AttentionElement<T>::kBytes == 4) {
    return (v & kAll) == kAll ? v : 0;
  } else {
    const uint32_t low = (v & kAll & 0xFFFFu) == (kAll & 0xFFFFu) ? v & 0xFFFFu : 0;
    return low | ((v & kAll & ~0xFFFFu) == (kAll & ~0xFFFFu) ? v & ~0xFFFFu : 0);
  }
}

// Whether a tile holds any, and with `Clear` their removal. A thread's share.
template <class T, int Threads, int TileRows, bool Clear>
__device__ __noinline__ bool FindNotFinite(uint32_t tile, int panels) {
  bool found = false;
#pragma unroll 1
  for (int i = threadIdx.x; i < panels * TileRows * kPanelUnits; i += Threads) {
    uint32_t v[4], bad = 0;
    ptx::LoadShared16(tile + i * kUnitBytes, v);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t wrong = NotFinite<T>(v[j]);
      bad |= wrong;
      v[j] ^= wrong;
    }
    if (Clear && bad != 0) ptx::StoreShared16(tile + i * kUnitBytes, v);
    found |= bad != 0;
  }
  return found;
}

// Adds the elements of `tile`, of N rows, that are not finite to the sums of the rows that attend
// to them.
template <class T, int Columns, int N, int Blocks, class Bits>
__device__ __forceinline__ void AddNotFinite(float (&sums)[Blocks][Columns / 8][4], uint32_t tile,
                                             int panels, const Bits& bits) {
  constexpr int kBytes = AttentionElement<T>::kBytes;
  constexpr int kGroups = kPanelBytes / kBytes / 8;
  const uint32_t lane = threadIdx.x % 4 * 2 * kBytes;
#pragma unroll 1
  for (int row = 0; row < N; ++row) {
    bool counts[Blocks][2];
#pragma unroll
    for (int i = 0; i < Blocks; ++i) {
      const uint32_t of_unit = bits.OfUnit(i, row / kMaskUnit) >> (row % kMaskUnit);
      counts[i][0] = of_unit & 1, counts[i][1] = of_unit >> kMaskUnit & 1;
    }
#pragma unroll
    for (int g = 0; g < Columns / 8; ++g) {
      if (g / kGroups >= panels) break;
      const uint32_t panel = tile + g / kGroups * N * kPanelBytes;
      const int byte = g % kGroups * 8 * kBytes + lane;
      const uint32_t at = panel + PanelAt(row, byte / kUnitBytes) + byte % kUnitBytes;
      float pair[2];
      if constexpr (kBytes == 2) {
        const float2 both = DTypeTraits<T>::Unpack(NotFinite<T>(ptx::LoadShared4(at)));
        pair[0] = both.x, pair[1] = both.y;
      } else {
        pair[0] = __uint_as_float(NotFinite<T>(ptx::LoadShared4(at)));
        pair[1] = __uint_as_float(NotFinite<T>(ptx::LoadShared4(at + 4)));
      }
#pragma unroll
      for (int i = 0; i < Blocks; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[i][g][e] += counts[i][e / 2] ? pair[e % 2] : 0.0f;
      }
    }
  }
}

// Readies `tile` for the product with a tile of mixed blocks. All threads, once all have read the
// tile otherwise.
template <class T, int Threads, int Columns, int N, int Blocks, class Bits>
__device__ __forceinline__ void KeepFinite(float (&sums)[Blocks][Columns / 8][4], uint32_t tile,
                                           int panels, const Bits& bits) {
  if (!__syncthreads_or(FindNotFinite<T, Threads, N, false>(tile, panels))) return;
  AddNotFinite<T, Columns, N>(sums, tile, panels, bits);
  __syncthreads();
  FindNotFinite<T, Threads, N, true>(tile, panels);
  __syncthreads();
}

}  // namespace jaxsparse
