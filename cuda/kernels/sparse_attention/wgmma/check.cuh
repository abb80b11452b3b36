// Partial tiles of V. What a query does not attend may hold NaN, and 0 * NaN is NaN in the second
// product: spare warps take NaN and Inf out of a tile before it is multiplied and note its rows.
// The multiplying warps add them to the queries that attend them.
#pragma once

#include "cuda/core/dtype.cuh"
#include "cuda/core/matrix_copy.cuh"
#include "cuda/core/warpgroup.cuh"
#include "cuda/kernels/sparse_attention/wgmma/config.cuh"

namespace jaxsparse {

template <typename T>
inline constexpr uint32_t kExponent = std::is_same_v<T, __nv_bfloat16> ? 0x7F80u : 0x7C00u;

// The 16-bit elements of a word that are NaN or Inf, as a mask of their bits.
template <typename T>
__device__ __forceinline__ uint32_t NonfiniteHalves(uint32_t v) {
  constexpr uint32_t kLow = kExponent<T>, kHigh = kLow << 16;
  return ((v & kLow) == kLow ? 0xFFFFu : 0u) | ((v & kHigh) == kHigh ? 0xFFFF0000u : 0u);
}

// Takes NaN and Inf out of row `row` of a tile of `Rows` rows and `Blocks` times 64 columns; true
// where there were any. The lanes of a warp take rows in succession and start at different columns:
// no bank conflicts.
template <typename T, int Rows, int Blocks>
__device__ __forceinline__ bool CleanRow(uint32_t tile, int row) {
  bool found = false;
  for (int block = 0; block < Blocks; ++block) {
    const uint32_t line = tile + (block * Rows + row) * 128;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t at = line + (i + row) % 8 * 16;
      uint32_t v[4];
      ptx::LoadShared16(at, v);
      uint32_t bad[4], any = 0;
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        bad[w] = NonfiniteHalves<T>(v[w]);
        any |= bad[w];
      }
      if (any == 0) continue;
      found = true;
#pragma unroll
      for (int w = 0; w < 4; ++w) v[w] &= ~bad[w];
      ptx::StoreShared16(at, v);
    }
  }
  return found;
}

// Warp `part` of a stream's checking warps.
template <class C>
__device__ void CheckValues(typename C::Shared& shared, int stream, int part) {
  typename C::Stream& s = shared.streams[stream];
  const int lane = threadIdx.x % 32;
  RingPosition<C::kChecks> at;
  for (;; at.Advance()) {
    ptx::BarrierWait(ptx::SharedAddress(&s.check_full[at.stage]), at.parity);
    const int stage = s.check_stage[at.stage];
    if (stage < 0) return;
    const uint32_t tile = ptx::SharedAddress(shared.ring[stream][stage]);
    for (int word = part; word < C::kKv / 32; word += C::kCheckWarps) {
      const bool found = CleanRow<typename C::T, C::kKv, C::kVBlocks>(tile, word * 32 + lane);
      const uint32_t rows = __ballot_sync(~0u, found);
      if (lane == 0) s.info[stage].nonfinite[word] = rows;
    }
    ptx::FenceAsyncProxy();
    __syncwarp();
    if constexpr (C::kCheckWarps > 1) ptx::NamedBarrier(3, 32 * C::kCheckWarps);
    if (lane == 0) {
      if (part == 0) ptx::BarrierArrive(ptx::SharedAddress(&s.full[stage]));
      ptx::BarrierArrive(ptx::SharedAddress(&s.check_empty[at.stage]));
    }
    __syncwarp();
  }
}

}  // namespace jaxsparse
