// The first launch: activations, and a bit for each column that some token has one in.
//
// Floor:  the bytes of the gate's matrix, or of w_up without a gate; with one, of those sectors of
//         w_up (32 bytes of a row) that hold an open column of some token.
// Tile:   a CTA has 32 columns, one word of bits, and all rows. Four lanes load a row's 32 columns,
//         eight each; a lane has eight rows in flight, a warp 64. Rows go round the eight warps.
// Sum:    lanes of the same columns by shuffles, warps through shared memory in their order: warp t
//         then has token t, and lane c column c, so that a ballot is the token's bits.
#pragma once

#include "cuda/core/overlap.cuh"
#include "cuda/kernels/sparse_ffn/params.cuh"

namespace jaxsparse {

constexpr uint32_t kFfnAllLanes = 0xFFFFFFFFu;

template <class T>
__device__ __forceinline__ float Rounded(float v) {
  return simt::ToFloat(simt::FromFloat<T>(v));
}

template <class T, int kTokens>
class ColumnProduct {
 public:
  using Sums = float[kFfnWarps][kTokens][kFfnColumns];

  __device__ ColumnProduct(const FfnArgs& a, Sums& shared)
      : a_(a), x_(static_cast<const T*>(a.x)), shared_(shared) {}

  // x[t] @ w[:, column], rounded, in warp t and lane c; 0 in other warps. `open` has a bit for each
  // column that counts: what no such column shares a sector with is not read, and is 0.
  __device__ float Run(const T* w, int first_column, uint32_t open) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int group = lane % 4, column = first_column + group * 8;
    float sums[kTokens][8] = {};
    if (column < a_.hidden && SectorOpen(open, group)) {
      for (int row = (warp * 8 + lane / 4) * 8; row < a_.depth; row += kFfnWarps * 64) {
        AddRows(w, row, column, sums);
      }
    }
    return Reduced(sums, warp, lane, group);
  }

 private:
  static __device__ bool SectorOpen(uint32_t open, int group) {
    constexpr int kSector = 32 / sizeof(T);
    return (open >> (group * 8 / kSector * kSector) & (0xFFFFFFFFu >> (32 - kSector))) != 0;
  }

  __device__ void AddRows(const T* w, int row, int column, float (&sums)[kTokens][8]) const {
    Eight<T> weights[8], inputs[kTokens];
#pragma unroll
    for (int u = 0; u < 8; ++u) weights[u].Stream(w + int64_t{row + u} * a_.hidden + column);
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      inputs[t].Clear();
      if (t < a_.tokens) inputs[t].Load(x_ + int64_t{t} * a_.depth + row);
    }
    float x[kTokens][8];
#pragma unroll
    for (int t = 0; t < kTokens; ++t) inputs[t].Floats(x[t]);
#pragma unroll
    for (int u = 0; u < 8; ++u) {
      float weight[8];
      weights[u].Floats(weight);
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
#pragma unroll
        for (int c = 0; c < 8; ++c) sums[t][c] = fmaf(x[t][u], weight[c], sums[t][c]);
      }
    }
  }

  __device__ float Reduced(float (&sums)[kTokens][8], int warp, int lane, int group) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        float v = sums[t][c];
#pragma unroll
        for (int d = 4; d < 32; d *= 2) v += __shfl_xor_sync(kFfnAllLanes, v, d);
        if (lane < 4) shared_[warp][t][group * 8 + c] = v;
      }
    }
    __syncthreads();
    float sum = 0.0f;
    if (warp < kTokens) {
#pragma unroll
      for (int w = 0; w < kFfnWarps; ++w) sum += shared_[w][warp][lane];
    }
    __syncthreads();
    return Rounded<T>(sum);
  }

  const FfnArgs& a_;
  const T* x_;
  Sums& shared_;
};

template <class T, int kTokens>
__global__ void __launch_bounds__(kFfnThreads)
    ActivateKernel(const FfnArgs a, const FfnScratch s, int panels) {
  __shared__ typename ColumnProduct<T, kTokens>::Sums shared;
  __shared__ uint32_t bits[kFfnWarps];
  LetNextStart();
  if (blockIdx.x == 0) {
    for (int i = threadIdx.x; i < panels; i += kFfnThreads) s.arrivals[i] = 0;
  }
  const int lane = threadIdx.x % 32, token = threadIdx.x / 32;
  const int first = blockIdx.x * kFfnColumns;
  const bool mine = token < a.tokens && first + lane < a.hidden;
  const auto any_token = [&](bool set) {
    const uint32_t own = __ballot_sync(kFfnAllLanes, set && mine);
    if (lane == 0) bits[token] = own;
    __syncthreads();
    uint32_t all = 0;
#pragma unroll
    for (int w = 0; w < kFfnWarps; ++w) all |= bits[w];
    __syncthreads();
    return all;
  };
  ColumnProduct<T, kTokens> product(a, shared);
  const void* const gate = a.w_gate != nullptr ? a.w_gate : a.w_up;
  const float pre = product.Run(static_cast<const T*>(gate), first, kFfnAllLanes);
  float h = pre <= 0.0f ? 0.0f : pre;  // NaN stays
  if (a.squared) h = Rounded<T>(h * h);
  uint32_t active = any_token(h != 0.0f);
  if (a.w_gate != nullptr && active != 0) {
    const float up = product.Run(static_cast<const T*>(a.w_up), first, active);
    h = h == 0.0f ? 0.0f : Rounded<T>(h * up);
    active = any_token(h != 0.0f);
  }
  if (mine) s.h[int64_t{token} * a.hidden + first + lane] = h;
  if (threadIdx.x == 0) s.words[blockIdx.x] = active;
}

}  // namespace jaxsparse
