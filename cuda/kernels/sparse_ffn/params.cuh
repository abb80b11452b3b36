// What both launches of sparse_ffn know: where the workspace's pieces are, and vectors of eight.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/core/device.h"
#include "cuda/core/element.cuh"
#include "cuda/core/launch.h"
#include "cuda/kernels/sparse_ffn/launch.h"

namespace jaxsparse {

constexpr int kFfnWarps = 8, kFfnThreads = kFfnWarps * 32;
constexpr int kFfnColumns = 32;  // of the first product in a CTA: one word of bits
constexpr int kFfnPanel = 256;   // columns of the result in a CTA: eight a lane
constexpr int kFfnMostSplits = 64;

// Shares of the active rows: with the panels they fill the multiprocessors twice.
inline int FfnSplits(int64_t outputs) {
  const int64_t panels = std::max<int64_t>(1, CeilDiv(outputs, kFfnPanel));
  return static_cast<int>(
      std::clamp<int64_t>(CeilDiv(2 * kHopperMultiProcessors, panels), 1, kFfnMostSplits));
}

// Words of bits; one at least, so that the first launch is never empty.
inline int64_t FfnWords(int64_t hidden) {
  return std::max<int64_t>(1, CeilDiv(hidden, kFfnColumns));
}

struct FfnScratch {
  float* h;            // [tokens, hidden], as rounded
  uint32_t* words;     // a bit for each row of w_down that some token needs
  uint32_t* arrivals;  // [panels]: CTAs whose sums are written
  float* sums;         // [splits, tokens, outputs]
  int splits;
};

// The pieces at `base`, and their size.
inline FfnScratch CarveFfn(void* base, int64_t tokens, int64_t hidden, int64_t outputs,
                           int64_t* bytes) {
  FfnScratch s = {};
  s.splits = FfnSplits(outputs);
  char* at = static_cast<char*>(base);
  const auto take = [&](int64_t count) {
    char* const piece = at;
    at += CeilDiv(count * 4, 16) * 16;
    return piece;
  };
  s.h = reinterpret_cast<float*>(take(tokens * hidden));
  s.words = reinterpret_cast<uint32_t*>(take(FfnWords(hidden)));
  s.arrivals = reinterpret_cast<uint32_t*>(take(CeilDiv(outputs, kFfnPanel)));
  s.sums = reinterpret_cast<float*>(take(s.splits * tokens * outputs));
  *bytes = at - static_cast<char*>(base);
  return s;
}

// Eight elements, in accesses of 16 bytes.
template <class T>
struct Eight {
  static constexpr int kAccesses = sizeof(T) * 8 / 16;
  uint4 bits[kAccesses];

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int i = 0; i < kAccesses; ++i) bits[i] = make_uint4(0, 0, 0, 0);
  }
  // Weights pass the first-level cache by: each is read once.
  __device__ __forceinline__ void Stream(const T* p) {
#pragma unroll
    for (int i = 0; i < kAccesses; ++i) {
      bits[i] = __ldcs(reinterpret_cast<const uint4*>(p) + i);
    }
  }
  __device__ __forceinline__ void Load(const T* p) {
#pragma unroll
    for (int i = 0; i < kAccesses; ++i) bits[i] = __ldg(reinterpret_cast<const uint4*>(p) + i);
  }
  __device__ __forceinline__ void Floats(float (&to)[8]) const {
    constexpr int kLanes = 8 / kAccesses;
#pragma unroll
    for (int i = 0; i < kAccesses; ++i) {
      simt::Vector<T, kLanes> v;
      v.bits = bits[i];
#pragma unroll
      for (int j = 0; j < kLanes; ++j) to[i * kLanes + j] = simt::ToFloat(v.lanes[j]);
    }
  }
};

}  // namespace jaxsparse
