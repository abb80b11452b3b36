// ScatterStore: bias, residual, activation, rounding, and rows of the compute tile back to the
// pixels they came from. Rows without a pixel are dropped (the phantom write, after DynaSpa 3.1);
// so nothing outside the mask is touched.
#pragma once

#include "cuda/core/dtype.cuh"
#include "cuda/tile/conv_params.h"
#include "cuda/tile/quad.cuh"

namespace jaxsparse {

// max and min that keep NaN.
__device__ __forceinline__ float Clamp(float v, float low, float high) {
  asm("max.NaN.f32 %0, %0, %1;\n\tmin.NaN.f32 %0, %0, %2;" : "+f"(v) : "f"(low), "f"(high));
  return v;
}

// v * sigmoid(v * (a + b*v*v)): silu with (1, 0), gelu's tanh form with 2*sqrt(2/pi) * (1,
// 0.044715).
__device__ __forceinline__ float Gated(float v, float a, float b) {
  const float slope = a + b * fminf(v * v, 1e30f);
  return __fdividef(v, 1.0f + __expf(-v * slope));
}

__device__ __forceinline__ float Activate(const ConvParams& p, float v) {
  return p.gated ? Gated(v, p.gate_a, p.gate_b) : Clamp(v, p.low, p.high);
}

// Elements [at, at + 4) of a tensor of T, or of float32.
template <typename T>
__device__ __forceinline__ float4 LoadVector(const void* tensor, bool f32, int64_t at) {
  if constexpr (DTypeTraits<T>::kBytes == 2) {
    if (!f32) {
      const uint2 v = *reinterpret_cast<const uint2*>(static_cast<const char*>(tensor) + 2 * at);
      const float2 a = DTypeTraits<T>::Unpack(v.x), b = DTypeTraits<T>::Unpack(v.y);
      return {a.x, a.y, b.x, b.y};
    }
  }
  return *reinterpret_cast<const float4*>(static_cast<const float*>(tensor) + at);
}

// The sums of four columns of one pixel, of which the tensor has all or none.
template <typename T>
__device__ void StoreVector(const ConvParams& p, int pixel, int column, float4 sum) {
  if (p.bias != nullptr) {
    const float4 bias = __ldg(reinterpret_cast<const float4*>(p.bias + column));
    sum = {sum.x + bias.x, sum.y + bias.y, sum.z + bias.z, sum.w + bias.w};
  }
  const int64_t at = static_cast<int64_t>(pixel) * p.out_c + column;
  if (p.residual != nullptr) {
    const float4 r = LoadVector<T>(p.residual, p.out_f32, at);
    sum = {sum.x + r.x, sum.y + r.y, sum.z + r.z, sum.w + r.w};
  }
  sum = {Activate(p, sum.x), Activate(p, sum.y), Activate(p, sum.z), Activate(p, sum.w)};
  if (p.out_f32) {
    *reinterpret_cast<float4*>(static_cast<float*>(p.out) + at) = sum;
  } else if constexpr (DTypeTraits<T>::kBytes == 2) {
    *reinterpret_cast<uint2*>(static_cast<char*>(p.out) + 2 * at) =
        make_uint2(DTypeTraits<T>::Pack(sum.x, sum.y), DTypeTraits<T>::Pack(sum.z, sum.w));
  }
}

template <typename T, int TileN>
class ScatterStore {
 public:
  // `column` is the tile's first output channel.
  __device__ ScatterStore(const ConvParams& p, int column) : p_(p), column_(column) {}

  // One 64-row block's accumulators; pixels[h] is the flat output pixel of this thread's row h, or
  // -1.
  __device__ void Store(float (&acc)[TileN / 2], const int (&pixels)[2]) const {
    AddBias(acc);
    if (p_.residual != nullptr) {
      StoreAs<true>(acc, pixels);
    } else {
      ActivateAll(acc);
      StoreAs<false>(acc, pixels);
    }
  }

 private:
  template <bool kResidual>
  __device__ void StoreAs(const float (&acc)[TileN / 2], const int (&pixels)[2]) const {
    if (p_.out_f32) {
      StoreF32<kResidual>(acc, pixels);
    } else if constexpr (DTypeTraits<T>::kBytes == 2) {
      StoreHalf<kResidual>(acc, pixels);
    }
  }

  __device__ void AddBias(float (&acc)[TileN / 2]) const {
    if (p_.bias == nullptr) return;
    const int first = column_ + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int j = 0; j < TileN / 8; ++j) {
      const int c = first + 8 * j;
      if (c >= p_.out_c) continue;
      const float2 bias = __ldg(reinterpret_cast<const float2*>(p_.bias + c));
      acc[4 * j] += bias.x;
      acc[4 * j + 1] += bias.y;
      acc[4 * j + 2] += bias.x;
      acc[4 * j + 3] += bias.y;
    }
  }

  // Pairs of columns: a quad writes 32 contiguous bytes, one whole sector.
  template <bool kResidual>
  __device__ void StoreF32(const float (&acc)[TileN / 2], const int (&pixels)[2]) const {
    const int first = column_ + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (pixels[h] < 0) continue;
      const int64_t row = static_cast<int64_t>(pixels[h]) * p_.out_c;
#pragma unroll
      for (int j = 0; j < TileN / 8; j += 4) {
        float run[8];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int c = first + 8 * (j + i);
          float2 v = {0.0f, 0.0f};
          if (kResidual && c < p_.out_c) {
            const float* at = static_cast<const float*>(p_.residual) + row + c;
            v = __ldg(reinterpret_cast<const float2*>(at));
          }
          run[2 * i] = acc[4 * (j + i) + 2 * h] + v.x;
          run[2 * i + 1] = acc[4 * (j + i) + 2 * h + 1] + v.y;
        }
        if (kResidual) ActivateAll(run);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int c = first + 8 * (j + i);
          if (c >= p_.out_c) continue;
          *reinterpret_cast<float2*>(static_cast<float*>(p_.out) + row + c) =
              make_float2(run[2 * i], run[2 * i + 1]);
        }
      }
    }
  }

  // Quads trade pairs of columns for runs of eight: 16 bytes a lane, 64 contiguous bytes a quad. A
  // lane reads of the residual what it will write, two runs ahead: the accumulators leave no
  // registers for more.
  template <bool kResidual>
  __device__ void StoreHalf(const float (&acc)[TileN / 2], const int (&pixels)[2]) const {
    const int first = column_ + 8 * (threadIdx.x % 4);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int64_t row = static_cast<int64_t>(max(pixels[h], 0)) * p_.out_c;
      uint4 residual[2] = {};
#pragma unroll
      for (int j = 0; j < TileN / 8; j += 4) {
        const int c = first + 8 * j, pair = j / 4 % 2;
        if (kResidual && pair == 0) {
#pragma unroll
          for (int i = 0; i < 2; ++i) residual[i] = Residual(pixels[h], row, c + 32 * i);
        }
        float run[8];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          run[2 * i] = acc[4 * (j + i) + 2 * h];
          run[2 * i + 1] = acc[4 * (j + i) + 2 * h + 1];
        }
        if (kResidual) AddRun(run, residual[pair]);
        if (kResidual) ActivateAll(run);
        uint32_t v[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) v[i] = DTypeTraits<T>::Pack(run[2 * i], run[2 * i + 1]);
        TransposeQuad(v);
        if (pixels[h] >= 0 && c < p_.out_c) {
          *reinterpret_cast<uint4*>(static_cast<char*>(p_.out) + 2 * (row + c)) =
              make_uint4(v[0], v[1], v[2], v[3]);
        }
      }
    }
  }

  // Eight elements of the residual; zeros where nothing will be written.
  __device__ uint4 Residual(int pixel, int64_t row, int c) const {
    if (pixel < 0 || c >= p_.out_c) return {};
    const char* at = static_cast<const char*>(p_.residual) + 2 * (row + c);
    return __ldg(reinterpret_cast<const uint4*>(at));
  }

  // Adds them after a trade: to the pairs of columns that the lanes hold.
  __device__ void AddRun(float (&run)[8], const uint4& elements) const {
    uint32_t v[4] = {elements.x, elements.y, elements.z, elements.w};
    TransposeQuad(v);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = DTypeTraits<T>::Unpack(v[i]);
      run[2 * i] += pair.x;
      run[2 * i + 1] += pair.y;
    }
  }

  // In one go where nothing is added: a branch for every run cost 5 % of a call of 64 outputs.
  template <int Count>
  __device__ void ActivateAll(float (&values)[Count]) const {
    if (p_.gated) {
#pragma unroll
      for (float& v : values) v = Gated(v, p_.gate_a, p_.gate_b);
    } else {
#pragma unroll
      for (float& v : values) v = Clamp(v, p_.low, p_.high);
    }
  }

  const ConvParams& p_;
  int column_;
};

}  // namespace jaxsparse
