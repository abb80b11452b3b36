// Elements of the SIMT kernels: vectors of channels loaded as float32, the fused activation, and
// rounding on the way out.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/core/activation.h"

namespace jaxsparse::simt {

__device__ __forceinline__ float ToFloat(float v) { return v; }
__device__ __forceinline__ float ToFloat(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ __forceinline__ float ToFloat(__half v) { return __half2float(v); }

template <class T>
__device__ __forceinline__ T FromFloat(float v);
template <>
__device__ __forceinline__ float FromFloat<float>(float v) {
  return v;
}
template <>
__device__ __forceinline__ __nv_bfloat16 FromFloat<__nv_bfloat16>(float v) {
  return __float2bfloat16_rn(v);
}
template <>
__device__ __forceinline__ __half FromFloat<__half>(float v) {
  return __float2half_rn(v);
}

// Bits as wide as an access of kBytes.
template <int kBytes>
struct Bits;
template <>
struct Bits<2> {
  using Type = uint16_t;
};
template <>
struct Bits<4> {
  using Type = uint32_t;
};
template <>
struct Bits<8> {
  using Type = uint2;
};
template <>
struct Bits<16> {
  using Type = uint4;
};

// N elements moved by one access; the address must be a multiple of its size.
template <class T, int N>
union Vector {
  typename Bits<sizeof(T) * N>::Type bits;
  T lanes[N];
  __device__ __forceinline__ Vector() {}
};

template <int N, class T>
__device__ __forceinline__ void LoadFloats(const T* source, float (&out)[N]) {
  Vector<T, N> v;
  v.bits = *reinterpret_cast<const decltype(v.bits)*>(source);
#pragma unroll
  for (int i = 0; i < N; ++i) out[i] = ToFloat(v.lanes[i]);
}

template <int N, class T>
__device__ __forceinline__ void StoreRounded(T* target, const float (&values)[N]) {
  Vector<T, N> v;
#pragma unroll
  for (int i = 0; i < N; ++i) v.lanes[i] = FromFloat<T>(values[i]);
  *reinterpret_cast<decltype(v.bits)*>(target) = v.bits;
}

// N results at element `offset` of a tensor of T, or of float32.
template <int N, class T>
__device__ __forceinline__ void StoreResult(void* out, bool out_f32, int64_t offset,
                                            const float (&values)[N]) {
  constexpr int kPart = N * sizeof(float) > 16 ? 4 : N;
  if (!out_f32) return StoreRounded(static_cast<T*>(out) + offset, values);
#pragma unroll
  for (int i = 0; i < N; i += kPart) {
    float part[kPart];
#pragma unroll
    for (int j = 0; j < kPart; ++j) part[j] = values[i + j];
    StoreRounded(static_cast<float*>(out) + offset + i, part);
  }
}

// Adds N elements from `offset` on of a tensor of T, or of float32.
template <int N, class T>
__device__ __forceinline__ void AddElements(const void* tensor, bool f32, int64_t offset,
                                            float (&values)[N]) {
  constexpr int kPart = N * sizeof(float) > 16 ? 4 : N;
  float read[N];
  if (f32) {
#pragma unroll
    for (int i = 0; i < N; i += kPart) {
      float part[kPart];
      LoadFloats(static_cast<const float*>(tensor) + offset + i, part);
#pragma unroll
      for (int j = 0; j < kPart; ++j) read[i + j] = part[j];
    }
  } else {
    LoadFloats(static_cast<const T*>(tensor) + offset, read);
  }
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] += read[i];
}

__device__ __forceinline__ float Activate(Activation kind, float v) {
  switch (kind) {
    case Activation::kNone:
      return v;
    case Activation::kRelu:
      return v < 0.0f ? 0.0f : v;  // NaN passes
    case Activation::kRelu6:
      return v < 0.0f ? 0.0f : (v > 6.0f ? 6.0f : v);
    case Activation::kSilu:
      return v / (1.0f + __expf(-v));
    case Activation::kGelu: {
      const float inner = 0.7978845608028654f * (v + 0.044715f * v * v * v);
      return 0.5f * v * (1.0f + tanhf(inner));
    }
  }
  return v;
}

}  // namespace jaxsparse::simt
