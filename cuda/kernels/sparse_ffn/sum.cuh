// The second launch: sums over the active rows of w_down.
//
// Floor:  the bytes of the active rows.
// Tile:   a CTA has 256 columns, eight a lane, and an equal share of the active rows, whatever
//         columns they come from: it finds them in the words by a scan of their counts. A warp
//         takes every eighth row of the share, four of them in flight.
// Sum:    warps through shared memory and shares through the workspace, each in their order; the
//         CTA that arrives last at a panel adds up its shares. No float is added by an atomic, so a
//         result has the same bits in every run.
#pragma once

#include "cuda/core/overlap.cuh"
#include "cuda/kernels/sparse_ffn/activate.cuh"
#include "cuda/kernels/sparse_ffn/params.cuh"

namespace jaxsparse {

constexpr int kFfnChunk = 512;  // rows that are listed together

// The active rows from `low` to `high` of all, in order.
class RowShare {
 public:
  __device__ RowShare(const uint32_t* words, int count, int (&warps)[kFfnWarps])
      : words_(words), each_((count + kFfnThreads - 1) / kFfnThreads) {
    first_ = min(count, static_cast<int>(threadIdx.x) * each_);
    last_ = min(count, first_ + each_);
    int own = 0;
    for (int i = first_; i < last_; ++i) own += __popc(__ldcg(words + i));
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int through = own;  // inclusive
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int before = __shfl_up_sync(kFfnAllLanes, through, d);
      if (lane >= d) through += before;
    }
    if (lane == 31) warps[warp] = through;
    __syncthreads();
    before_ = through - own;
#pragma unroll
    for (int w = 0; w < kFfnWarps; ++w) {
      if (w < warp) before_ += warps[w];
      total_ += warps[w];
    }
  }

  __device__ int total() const { return total_; }

  // rows[i] = the active row low + i, for those below high.
  __device__ void List(int low, int high, int* rows) const {
    int place = before_;
    for (int i = first_; i < last_ && place < high; ++i) {
      for (uint32_t word = __ldcg(words_ + i); word != 0; word &= word - 1, ++place) {
        if (place >= low && place < high) rows[place - low] = i * kFfnColumns + __ffs(word) - 1;
      }
    }
  }

 private:
  const uint32_t* words_;
  int each_, first_ = 0, last_ = 0, before_ = 0, total_ = 0;
};

// sums[t][c] += h[t][row] * w[row][c] over the listed rows that are this warp's.
template <class T, int kTokens>
__device__ __forceinline__ void AddListed(const T* w, int outputs, int count, const int* rows,
                                          const float (*h)[kFfnChunk], float (&sums)[kTokens][8]) {
  constexpr int kAtOnce = 4;
  for (int i = threadIdx.x / 32; i < count; i += kFfnWarps * kAtOnce) {
    Eight<T> weights[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int at = i + u * kFfnWarps;
      weights[u].Clear();
      if (at < count) weights[u].Stream(w + int64_t{rows[at]} * outputs);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int at = min(i + u * kFfnWarps, count - 1);
      const bool there = i + u * kFfnWarps < count;
      float weight[8];
      weights[u].Floats(weight);
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const float value = there ? h[t][at] : 0.0f;
#pragma unroll
        for (int c = 0; c < 8; ++c) sums[t][c] = fmaf(value, weight[c], sums[t][c]);
      }
    }
  }
}

template <class T, int kTokens>
__global__ void __launch_bounds__(kFfnThreads)
    SumKernel(const FfnArgs a, const FfnScratch s, int word_count) {
  __shared__ int warps[kFfnWarps], rows[kFfnChunk];
  __shared__ float h[kTokens][kFfnChunk], shared[kFfnWarps][kFfnPanel];
  __shared__ bool last;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, split = blockIdx.y;
  const int column = blockIdx.x * kFfnPanel + lane * 8;
  WaitForPrevious();
  const RowShare share(s.words, word_count, warps);
  const auto edge = [&](int i) { return static_cast<int>(int64_t{share.total()} * i / s.splits); };
  const int end = edge(split + 1);
  float sums[kTokens][8] = {};
  for (int low = edge(split); low < end; low += kFfnChunk) {
    const int count = min(end - low, kFfnChunk);
    __syncthreads();
    share.List(low, low + count, rows);
    __syncthreads();
    for (int i = threadIdx.x; i < kTokens * count; i += kFfnThreads) {
      const int t = i / count, at = i % count;
      h[t][at] = t < a.tokens ? __ldcg(s.h + int64_t{t} * a.hidden + rows[at]) : 0.0f;
    }
    __syncthreads();
    if (column < a.outputs) {
      AddListed(static_cast<const T*>(a.w_down) + column, a.outputs, count, rows, h, sums);
    }
  }
  const int own = blockIdx.x * kFfnPanel + threadIdx.x;  // the column that this thread adds up
  for (int t = 0; t < a.tokens; ++t) {
    __syncthreads();
#pragma unroll
    for (int each = 0; each < kTokens; ++each) {
      if (each != t) continue;
#pragma unroll
      for (int c = 0; c < 8; ++c) shared[warp][lane * 8 + c] = sums[each][c];
    }
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kFfnWarps; ++w) sum += shared[w][threadIdx.x];
    if (own < a.outputs) s.sums[(int64_t{split} * a.tokens + t) * a.outputs + own] = sum;
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(s.arrivals + blockIdx.x, 1u) == static_cast<uint32_t>(s.splits - 1);
  }
  __syncthreads();
  if (!last || own >= a.outputs) return;
  __threadfence();
  for (int t = 0; t < a.tokens; ++t) {
    float sum = 0.0f;
#pragma unroll 8
    for (int i = 0; i < s.splits; ++i) {
      sum += __ldcg(s.sums + (int64_t{i} * a.tokens + t) * a.outputs + own);
    }
    static_cast<T*>(a.y)[int64_t{t} * a.outputs + own] = simt::FromFloat<T>(sum);
  }
}

}  // namespace jaxsparse
