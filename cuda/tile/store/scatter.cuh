// ScatterStore: bias, residual, activation, rounding, and rows of the compute tile back to the
// pixels they came from. Rows without a pixel are dropped (the phantom write, after DynaSpa 3.1);
// so nothing outside the mask is touched.
#pragma once

#include <cmath>

#include "cuda/core/dtype.cuh"
#include "cuda/tile/conv/params.h"
#include "cuda/tile/store/trade.cuh"

namespace jaxsparse {

// max and min that keep NaN.
__device__ __forceinline__ float Clamp(float v, float low, float high) {
  asm("max.NaN.f32 %0, %0, %1;\n\tmin.NaN.f32 %0, %0, %2;" : "+f"(v) : "f"(low), "f"(high));
  return v;
}

// v * sigmoid(v * (a + b*v*v)): silu with (1, 0), gelu's tanh form with 2*sqrt(2/pi) * (1,
// 0.044715).
__device__ __forceinline__ float Gated(float v, float a, float b) {
  constexpr float kLog2E = 1.4426950409f;
  const float slope = a + b * fminf(v * v, 1e30f);
  float power;  // a denormal one is nothing beside 1
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(-kLog2E * v * slope));
  return __fdividef(v, 1.0f + power);
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

// The calls that a kernel stores for, and in how much code. kEach: all, in code of its own for each
// kind. kAny: all, in code that they share, which is less to compile for a kernel of many bodies:
// 16-bit results are clamped from both sides, in up to eight more instructions for a run of eight.
// kPlain: calls whose results are of T, rectified at most, and to which nothing is added but the
// bias.
enum class Stores { kEach, kAny, kPlain };

// `Trade`: how a quad turns pairs of columns into runs of eight.
template <typename T, int TileN, class Trade = QuadTrade, Stores kStores = Stores::kEach>
class ScatterStore {
 public:
  // `column` is the tile's first output channel.
  __device__ ScatterStore(const ConvParams& p, int column, const Trade& trade = {})
      : p_(p), column_(column), trade_(trade) {}

  // One 64-row block's accumulators; pixels[h] is the flat output pixel of this thread's row h, or
  // -1. Whole warps.
  __device__ void Store(float (&acc)[TileN / 2], const int (&pixels)[2]) const {
    AddBias(acc);
    if constexpr (kStores == Stores::kPlain) {
      DTypeTraits<T>::kBytes == 4 ? StoreF32<false>(acc, pixels)
                                  : StoreHalf<false, kLow>(acc, pixels);
    } else if constexpr (kStores == Stores::kAny) {
      StoreAny(acc, pixels);
    } else {
      StoreByKind(acc, pixels);
    }
  }

 private:
  __device__ __forceinline__ void StoreByKind(float (&acc)[TileN / 2],
                                              const int (&pixels)[2]) const {
    if (p_.residual == nullptr && p_.gated) Gate(acc);
    if (DTypeTraits<T>::kBytes == 4 || p_.out_f32) {
      p_.residual != nullptr ? StoreF32<true>(acc, pixels) : StoreF32<false>(acc, pixels);
    } else if (p_.residual != nullptr) {
      StoreHalf<true, kBoth>(acc, pixels);
    } else if (p_.high < INFINITY) {
      StoreHalf<false, kBoth>(acc, pixels);
    } else if (p_.low > -INFINITY) {
      StoreHalf<false, kLow>(acc, pixels);
    } else {
      StoreHalf<false, kNone>(acc, pixels);
    }
  }

  // Columns of a run: what a quad trades, 16 bytes a lane of 16-bit elements.
  static constexpr int kRunColumns = 32, kRuns = TileN / kRunColumns;
  static_assert(TileN % kRunColumns == 0, "a tile is whole runs");
  // Trades on their way.
  static constexpr int kAtOnce = kRuns <= 3 || kRuns == 5 ? kRuns : kRuns % 4 == 0 ? 4 : 3;
  static_assert(kRuns % kAtOnce == 0, "a row of a tile is whole groups of runs");
  enum Bounds { kNone, kLow, kBoth };  // that results are clamped to

  // The first of the pair of columns that this lane holds of every eight.
  __device__ int FirstOfPair() const { return column_ + 2 * (threadIdx.x % 4); }
  // The first of the eight that it reads and writes of a run of 16-bit elements.
  __device__ int FirstOfRun() const { return column_ + 8 * (threadIdx.x % 4); }
  // Of its row, which may be none: then the result is not to be used.
  __device__ int64_t RowAt(int pixel) const {
    return static_cast<int64_t>(max(pixel, 0)) * p_.out_c;
  }

  __device__ void AddBias(float (&acc)[TileN / 2]) const {
    if (p_.bias == nullptr) return;
    const int first = FirstOfPair();
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

  template <int Count>
  __device__ void Gate(float (&values)[Count]) const {
#pragma unroll
    for (float& v : values) v = Gated(v, p_.gate_a, p_.gate_b);
  }

  // Group after group of runs: added to, gated, clamped, stored. Results of 16 bits are rounded and
  // then clamped, as StoreHalf does it.
  __device__ void StoreAny(float (&acc)[TileN / 2], const int (&pixels)[2]) const {
    const bool f32 = DTypeTraits<T>::kBytes == 4 || p_.out_f32;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int64_t row = RowAt(pixels[h]);
#pragma unroll
      for (int begin = 0; begin < kRuns; begin += kAtOnce) {
        if (p_.residual != nullptr) {
          f32 ? AddGroupF32(acc, pixels[h], row, h, begin)
              : AddGroupHalf(acc, pixels[h], row, h, begin);
        }
        if (p_.gated) GateGroup(acc, h, begin);
        f32 ? StoreGroupF32(acc, pixels[h], row, h, begin)
            : StoreGroupHalf(acc, pixels[h], row, h, begin);
      }
    }
  }

  // Pair i of run r of row h.
  __device__ static float& Of(float (&acc)[TileN / 2], int h, int r, int i, int element) {
    return acc[4 * (4 * r + i) + 2 * h + element];
  }

  __device__ void AddGroupF32(float (&acc)[TileN / 2], int pixel, int64_t row, int h,
                              int begin) const {
    const float* from = static_cast<const float*>(p_.residual) + row;
#pragma unroll
    for (int r = begin; r < begin + kAtOnce; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int c = FirstOfPair() + r * kRunColumns + 8 * i;
        if (pixel < 0 || c >= p_.out_c) continue;
        const float2 v = __ldg(reinterpret_cast<const float2*>(from + c));
        Of(acc, h, r, i, 0) += v.x;
        Of(acc, h, r, i, 1) += v.y;
      }
    }
  }

  __device__ void AddGroupHalf(float (&acc)[TileN / 2], int pixel, int64_t row, int h,
                               int begin) const {
    if constexpr (DTypeTraits<T>::kBytes == 2) {
      uint4 residual[2] = {};
#pragma unroll
      for (int r = begin; r < begin + kAtOnce; ++r) {
        if ((r - begin) % 2 == 0) {
#pragma unroll
          for (int j = 0; j < 2 && r + j < begin + kAtOnce; ++j) {
            residual[j] = ReadRun(pixel, 2 * (row + FirstOfRun()), r + j);
          }
        }
        const uint4& v = residual[(r - begin) % 2];
        uint32_t pairs[4] = {v.x, v.y, v.z, v.w};
        trade_.ToPairs(pairs);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 pair = DTypeTraits<T>::Unpack(pairs[i]);
          Of(acc, h, r, i, 0) += pair.x;
          Of(acc, h, r, i, 1) += pair.y;
        }
      }
    }
  }

  __device__ void GateGroup(float (&acc)[TileN / 2], int h, int begin) const {
#pragma unroll
    for (int r = begin; r < begin + kAtOnce; ++r) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float& v = Of(acc, h, r, i / 2, i % 2);
        v = Gated(v, p_.gate_a, p_.gate_b);
      }
    }
  }

  __device__ void StoreGroupF32(float (&acc)[TileN / 2], int pixel, int64_t row, int h,
                                int begin) const {
    float* to = static_cast<float*>(p_.out) + row;
#pragma unroll
    for (int r = begin; r < begin + kAtOnce; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int c = FirstOfPair() + r * kRunColumns + 8 * i;
        if (pixel < 0 || c >= p_.out_c) continue;
        *reinterpret_cast<float2*>(to + c) =
            make_float2(Clamp(Of(acc, h, r, i, 0), p_.low, p_.high),
                        Clamp(Of(acc, h, r, i, 1), p_.low, p_.high));
      }
    }
  }

  __device__ void StoreGroupHalf(float (&acc)[TileN / 2], int pixel, int64_t row, int h,
                                 int begin) const {
    if constexpr (DTypeTraits<T>::kBytes == 2) {
      char* to = static_cast<char*>(p_.out) + 2 * (row + FirstOfRun());
      uint32_t v[kAtOnce][4];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        Round<false, kBoth>(acc, h, begin + i, {}, v[i]);
        trade_.ToRuns(v[i]);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int c = (begin + i) * kRunColumns;
        if (pixel < 0 || FirstOfRun() + c >= p_.out_c) continue;
        *reinterpret_cast<uint4*>(to + 2 * c) = make_uint4(v[i][0], v[i][1], v[i][2], v[i][3]);
      }
    }
  }

  // Pairs of columns: a quad writes 32 contiguous bytes, one whole sector.
  template <bool kResidual>
  __device__ void StoreF32(const float (&acc)[TileN / 2], const int (&pixels)[2]) const {
    const int first = FirstOfPair();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (pixels[h] < 0) continue;
      const int64_t row = RowAt(pixels[h]);
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
        if (kResidual && p_.gated) Gate(run);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int c = first + 8 * (j + i);
          if (c >= p_.out_c) continue;
          *reinterpret_cast<float2*>(static_cast<float*>(p_.out) + row + c) = make_float2(
              Clamp(run[2 * i], p_.low, p_.high), Clamp(run[2 * i + 1], p_.low, p_.high));
        }
      }
    }
  }

  // Rounded, then clamped two at a time: the bounds are numbers of T, so it is the same. Quads
  // exchange pairs of columns for runs of eight: 16 bytes a lane, 64 contiguous bytes a quad. A
  // lane reads of the residual what it will write, two runs ahead: the accumulators leave no
  // registers for more.
  template <bool kResidual, Bounds kBounds>
  __device__ void StoreHalf(const float (&acc)[TileN / 2], const int (&pixels)[2]) const {
    if constexpr (DTypeTraits<T>::kBytes == 2) {
      const int first = FirstOfRun();
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int64_t row = 2 * (RowAt(pixels[h]) + first);
        char* to = static_cast<char*>(p_.out) + row;
        uint4 residual[2] = {};
#pragma unroll
        for (int begin = 0; begin < kRuns; begin += kAtOnce) {
          uint32_t v[kAtOnce][4];
#pragma unroll
          for (int i = 0; i < kAtOnce; ++i) {
            const int r = begin + i;
            if (kResidual && r % 2 == 0) {
#pragma unroll
              for (int j = 0; j < 2 && r + j < kRuns; ++j) {
                residual[j] = ReadRun(pixels[h], row, r + j);
              }
            }
            Round<kResidual, kBounds>(acc, h, r, residual[r % 2], v[i]);
            trade_.ToRuns(v[i]);
          }
#pragma unroll
          for (int i = 0; i < kAtOnce; ++i) {
            const int c = (begin + i) * kRunColumns;
            if (pixels[h] < 0 || first + c >= p_.out_c) continue;
            *reinterpret_cast<uint4*>(to + 2 * c) = make_uint4(v[i][0], v[i][1], v[i][2], v[i][3]);
          }
        }
      }
    }
  }

  // Four pairs of columns of row h: added to, clamped, rounded.
  template <bool kResidual, Bounds kBounds>
  __device__ void Round(const float (&acc)[TileN / 2], int h, int r, const uint4& residual,
                        uint32_t (&v)[4]) const {
    float run[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      run[2 * i] = acc[4 * (4 * r + i) + 2 * h];
      run[2 * i + 1] = acc[4 * (4 * r + i) + 2 * h + 1];
    }
    if (kResidual) AddRun(run, residual);
    if (kResidual && p_.gated) Gate(run);
    const uint32_t low = DTypeTraits<T>::Pack(p_.low, p_.low);
    const uint32_t high = DTypeTraits<T>::Pack(p_.high, p_.high);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[i] = DTypeTraits<T>::Pack(run[2 * i], run[2 * i + 1]);
      if (kBounds != kNone) v[i] = DTypeTraits<T>::Max(v[i], low);
      if (kBounds == kBoth) v[i] = DTypeTraits<T>::Min(v[i], high);
    }
  }

  // Eight elements of the residual; zeros where nothing will be written.
  __device__ uint4 ReadRun(int pixel, int64_t row, int r) const {
    const int c = r * kRunColumns;
    if (pixel < 0 || FirstOfRun() + c >= p_.out_c) return {};
    const char* at = static_cast<const char*>(p_.residual) + row + 2 * c;
    return __ldg(reinterpret_cast<const uint4*>(at));
  }

  // Adds eight elements, after a trade, to the pairs of columns that the lanes hold.
  __device__ void AddRun(float (&run)[8], const uint4& elements) const {
    uint32_t v[4] = {elements.x, elements.y, elements.z, elements.w};
    trade_.ToPairs(v);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = DTypeTraits<T>::Unpack(v[i]);
      run[2 * i] += pair.x;
      run[2 * i + 1] += pair.y;
    }
  }

  const ConvParams& p_;
  int column_;
  Trade trade_;
};

}  // namespace jaxsparse
