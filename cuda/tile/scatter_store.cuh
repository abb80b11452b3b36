// ScatterStore: bias, activation, rounding, and rows of the compute tile back to the pixels they
// came from. Rows without a pixel are dropped (the phantom write, after DynaSpa 3.1); so nothing
// outside the mask is touched.
#pragma once

#include "cuda/core/dtype.cuh"
#include "cuda/tile/conv_params.h"

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

// Four finished columns of one pixel, of which the tensor has all or none.
template <typename T>
__device__ void StoreVector(const ConvParams& p, int pixel, int column, float4 sum) {
  if (p.bias != nullptr) {
    const float4 bias = __ldg(reinterpret_cast<const float4*>(p.bias + column));
    sum = {sum.x + bias.x, sum.y + bias.y, sum.z + bias.z, sum.w + bias.w};
  }
  sum = {Activate(p, sum.x), Activate(p, sum.y), Activate(p, sum.z), Activate(p, sum.w)};
  const int64_t at = static_cast<int64_t>(pixel) * p.out_c + column;
  if (p.out_f32) {
    *reinterpret_cast<float4*>(static_cast<float*>(p.out) + at) = sum;
  } else if constexpr (DTypeTraits<T>::kBytes == 2) {
    *reinterpret_cast<uint2*>(static_cast<char*>(p.out) + 2 * at) =
        make_uint2(DTypeTraits<T>::Pack(sum.x, sum.y), DTypeTraits<T>::Pack(sum.z, sum.w));
  }
}

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

template <typename T, int TileN>
class ScatterStore {
 public:
  // `column` is the tile's first output channel.
  __device__ ScatterStore(const ConvParams& p, int column) : p_(p), column_(column) {}

  // One 64-row block's accumulators; pixels[h] is the flat output pixel of this thread's row h, or
  // -1.
  __device__ void Store(float (&acc)[TileN / 2], const int (&pixels)[2]) const {
    AddBias(acc);
    ActivateAll(acc);
    if (p_.out_f32) {
      StoreF32(acc, pixels);
    } else if constexpr (DTypeTraits<T>::kBytes == 2) {
      StoreHalf(acc, pixels);
    }
  }

 private:
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

  __device__ void ActivateAll(float (&acc)[TileN / 2]) const {
    if (p_.gated) {
#pragma unroll
      for (float& v : acc) v = Gated(v, p_.gate_a, p_.gate_b);
    } else {
#pragma unroll
      for (float& v : acc) v = Clamp(v, p_.low, p_.high);
    }
  }

  // Pairs of columns: a quad writes 32 contiguous bytes, one whole sector.
  __device__ void StoreF32(const float (&acc)[TileN / 2], const int (&pixels)[2]) const {
    float* out = static_cast<float*>(p_.out);
    const int first = column_ + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (pixels[h] < 0) continue;
      float* row = out + static_cast<int64_t>(pixels[h]) * p_.out_c;
#pragma unroll
      for (int j = 0; j < TileN / 8; ++j) {
        const int c = first + 8 * j;
        if (c < p_.out_c) {
          *reinterpret_cast<float2*>(row + c) =
              make_float2(acc[4 * j + 2 * h], acc[4 * j + 2 * h + 1]);
        }
      }
    }
  }

  // Quads trade pairs of columns for runs of eight: 16 bytes a lane, 64 contiguous bytes a quad.
  __device__ void StoreHalf(const float (&acc)[TileN / 2], const int (&pixels)[2]) const {
    char* out = static_cast<char*>(p_.out);
    const int first = column_ + 8 * (threadIdx.x % 4);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      char* row = out + static_cast<int64_t>(max(pixels[h], 0)) * p_.out_c * 2;
#pragma unroll
      for (int j = 0; j < TileN / 8; j += 4) {
        uint32_t v[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = 4 * (j + i) + 2 * h;
          v[i] = DTypeTraits<T>::Pack(acc[at], acc[at + 1]);
        }
        TransposeQuad(v);
        const int c = first + 8 * j;
        if (pixels[h] >= 0 && c < p_.out_c) {
          *reinterpret_cast<uint4*>(row + 2 * c) = make_uint4(v[0], v[1], v[2], v[3]);
        }
      }
    }
  }

  const ConvParams& p_;
  int column_;
};

}  // namespace jaxsparse
