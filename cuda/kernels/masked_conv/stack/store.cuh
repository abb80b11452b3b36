// StackStore: what a block's epilogue reads of a layer, its bias and its residual, is asked for
// before the products are waited for; then bias, residual, activation, rounding, and rows back to
// their pixels, as ScatterStore does. A residual is what this thread wrote some layers before, so
// it is read by ordinary loads, never through the read-only path.
#pragma once

#include "cuda/core/dtype.cuh"
#include "cuda/tile/conv/params.h"
#include "cuda/tile/store/quad.cuh"
#include "cuda/tile/store/scatter.cuh"

namespace jaxsparse {

template <typename T>
class StackStore {
 public:
  static constexpr int kColumns = 64;

  // Of a layer; `bias` is a warp's own place for it in shared memory.
  __device__ StackStore(const ConvParams& p, float* bias)
      : out_(static_cast<char*>(p.out)),
        residual_(static_cast<const char*>(p.residual)),
        bias_(bias),
        columns_(p.out_c),
        gated_(p.gated),
        a_(p.gated ? p.gate_a : p.low),
        b_(p.gated ? p.gate_b : p.high) {
    const int c = 2 * (threadIdx.x % 32);
    const bool exists = p.bias != nullptr && c < columns_;
    const float2 own = exists ? __ldg(reinterpret_cast<const float2*>(p.bias + c)) : float2{};
    __syncwarp();  // the bias of the layer before was read
    *reinterpret_cast<float2*>(bias + c) = own;
    __syncwarp();
  }

  // The residual of this thread's two rows of a block; pixels[h] is flat, or -1.
  __device__ void Begin(const int (&pixels)[2]) {
    if (residual_ == nullptr) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const bool exists = pixels[h] >= 0 && Column(half) < columns_;
        added_[h][half] = {};
        if (!exists) continue;
        added_[h][half] =
            *reinterpret_cast<const uint4*>(residual_ + Offset(pixels[h], Column(half)));
      }
    }
  }

  __device__ void Store(const float (&acc)[kColumns / 2], const int (&pixels)[2]) const {
    if (gated_) {
      StoreAs<true>(acc, pixels);
    } else {
      StoreAs<false>(acc, pixels);
    }
  }

 private:
  // The first of the eight columns that this lane reads and writes of a half of 32.
  __device__ static int Column(int half) { return 32 * half + 8 * (threadIdx.x % 4); }
  __device__ int64_t Offset(int pixel, int column) const {
    return 2 * (static_cast<int64_t>(pixel) * columns_ + column);
  }

  template <bool kGated>
  __device__ void StoreAs(const float (&acc)[kColumns / 2], const int (&pixels)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float2 bias[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int c = 8 * (4 * half + i) + 2 * (threadIdx.x % 4);
        bias[i] = *reinterpret_cast<const float2*>(bias_ + c);
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint4 v = Round<kGated>(acc, bias, h, half);
        if (pixels[h] < 0 || Column(half) >= columns_) continue;
        *reinterpret_cast<uint4*>(out_ + Offset(pixels[h], Column(half))) = v;
      }
    }
  }

  // Quads exchange pairs of columns for runs of eight.
  template <bool kGated>
  __device__ uint4 Round(const float (&acc)[kColumns / 2], const float2 (&bias)[4], int h,
                         int half) const {
    float run[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int j = 4 * (4 * half + i) + 2 * h;
      run[2 * i] = acc[j] + bias[i].x;
      run[2 * i + 1] = acc[j + 1] + bias[i].y;
    }
    if (residual_ != nullptr) {
      const uint4& added = added_[h][half];
      uint32_t r[4] = {added.x, added.y, added.z, added.w};
      TransposeQuad(r);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = DTypeTraits<T>::Unpack(r[i]);
        run[2 * i] += pair.x;
        run[2 * i + 1] += pair.y;
      }
    }
#pragma unroll
    for (float& value : run) value = kGated ? Gated(value, a_, b_) : Clamp(value, a_, b_);
    uint32_t v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = DTypeTraits<T>::Pack(run[2 * i], run[2 * i + 1]);
    TransposeQuad(v);
    return {v[0], v[1], v[2], v[3]};
  }

  char* out_;
  const char* residual_;
  const float* bias_;
  int columns_;
  bool gated_;
  float a_, b_;  // of the gate, or the bounds
  uint4 added_[2][2];
};

}  // namespace jaxsparse
