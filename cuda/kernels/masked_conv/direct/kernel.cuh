// Direct masked convolution in float32 arithmetic: a thread owns a few pixels and a few
// neighbouring output channels.
//
// Floor: 2 * active * taps * C/groups * O FLOPs on the CUDA cores (51 TFLOP/s measured on an H200),
// or, depthwise, the bytes of the active pixels read and written once. Tile: 4 pixels x 4 outputs a
// thread (depthwise: 2 pixels x 16 bytes of channels); neighbouring threads hold neighbouring
// channels, so that a warp reads whole lines, and the weights that the pixels share are read once.
// Pipeline: none; the loads of the pixels are independent. Persistent over the list. Measured
// (H200, 3x3): 25 TFLOP/s float32 and 16 bfloat16 at 256 -> 256 channels, half of the floor's rate:
// a weight is loaded for every four pixels. Depthwise 64x56x56x256 262 us bfloat16 and 370 us
// float32 against floors of 48 and 96 us: nine loads a pixel and their conversions, not bytes, are
// what limits.
#pragma once

#include "cuda/core/element.cuh"
#include "cuda/kernels/masked_conv/pixels.cuh"

namespace jaxsparse::simt {

inline constexpr int kDirectThreads = 128;
inline constexpr int kDirectPixels = 4, kDepthwisePixels = 2;  // of a thread

struct DirectParams {
  ActivePixels pixels;
  TapReader taps;
  const void* x;
  const void* kernel;
  const float* bias;
  const void* residual;
  void* out;
  int64_t in_c, out_c;
  int group_in, group_out;  // channels of one group
  int lane_bits;            // 2^lane_bits threads side by side over the channels
  int64_t channel_blocks;   // of 2^lane_bits vectors
  Activation activation;
  bool out_f32;
};

// Where a thread stands in one block of work, and its pixels.
template <int kPixels>
struct DirectWork {
  int64_t vector;  // of output channels
  Pixel pixel[kPixels];
  bool active[kPixels];
  bool any;
  int64_t first[kPixels];  // element of tap (0, 0) as if the image had no border
  int row[kPixels], col[kPixels];

  __device__ __forceinline__ DirectWork(const DirectParams& p, int64_t work, int slots) {
    const int lanes = 1 << p.lane_bits;
    const int rows = kDirectThreads >> p.lane_bits;
    const int64_t block = work / p.channel_blocks;
    vector = (work - block * p.channel_blocks) * lanes + (threadIdx.x & (lanes - 1));
    const int64_t first = block * rows * kPixels + (threadIdx.x >> p.lane_bits);
    any = false;
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
      const int64_t slot = first + static_cast<int64_t>(i) * rows;
      active[i] = slot < slots && p.pixels.Active(static_cast<int>(slot), slots, &pixel[i]);
      any |= active[i];
    }
  }

  // Readies Source for the input channels from `channel` on.
  __device__ __forceinline__ void Aim(const DirectParams& p, int64_t channel) {
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
      row[i] = active[i] ? p.taps.FirstRow(pixel[i].y) : kNoRow;
      col[i] = active[i] ? p.taps.FirstCol(pixel[i].x) : 0;
      first[i] = channel;
      if (active[i] && p.taps.plain) {
        first[i] += ((int64_t{pixel[i].b} * p.taps.in_h + row[i]) * p.taps.in_w + col[i]) * p.in_c;
      }
    }
  }

  // Input elements of tap (ky, kx); nullptr where nothing is read.
  template <class T>
  __device__ __forceinline__ const T* Source(const DirectParams& p, int i, int ky, int kx) const {
    const T* x = static_cast<const T*>(p.x) + first[i];
    const int dy = ky * p.taps.dilation_h, dx = kx * p.taps.dilation_w;
    if (p.taps.plain) {
      return p.taps.Inside(row[i] + dy, col[i] + dx) ? x + (int64_t{dy} * p.taps.in_w + dx) * p.in_c
                                                     : nullptr;
    }
    if (!active[i]) return nullptr;
    const int64_t source = p.taps.Source(pixel[i].b, row[i] + dy, col[i] + dx);
    return source < 0 ? nullptr : x + source * p.in_c;
  }

  template <int N, class T>
  __device__ __forceinline__ void Store(const DirectParams& p, float (&acc)[kPixels][N]) const {
    const int64_t channel = vector * N;
    float bias[N];
#pragma unroll
    for (int n = 0; n < N; ++n) bias[n] = p.bias ? p.bias[channel + n] : 0.0f;
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
      if (!active[i]) continue;
#pragma unroll
      for (int n = 0; n < N; ++n) acc[i][n] += bias[n];
      const int64_t at = p.pixels.Flat(pixel[i]) * p.out_c + channel;
      if (p.residual) AddElements<N, T>(p.residual, p.out_f32, at, acc[i]);
#pragma unroll
      for (int n = 0; n < N; ++n) acc[i][n] = Activate(p.activation, acc[i][n]);
      StoreResult<N, T>(p.out, p.out_f32, at, acc[i]);
    }
  }
};

template <int kPixels>
__device__ __forceinline__ int64_t DirectBlocks(const DirectParams& p, int slots) {
  const int block_pixels = (kDirectThreads >> p.lane_bits) * kPixels;
  return (int64_t{slots} + block_pixels - 1) / block_pixels * p.channel_blocks;
}

// kOut neighbouring outputs of one group, kIn input channels a load.
template <class T, int kOut, int kIn>
__global__ void __launch_bounds__(kDirectThreads, 4) MaskedConvDirect(const DirectParams p) {
  const int slots = p.pixels.Slots();
  const int64_t blocks = DirectBlocks<kDirectPixels>(p, slots);
  for (int64_t item = blockIdx.x; item < blocks; item += gridDim.x) {
    DirectWork<kDirectPixels> work(p, item, slots);
    const int64_t output = work.vector * kOut;
    if (output >= p.out_c || !work.any) continue;
    work.Aim(p, output / p.group_out * p.group_in);
    const T* weights = static_cast<const T*>(p.kernel) + output;
    float acc[kDirectPixels][kOut] = {};
    for (int ky = 0; ky < p.taps.kernel_h; ++ky) {
      for (int kx = 0; kx < p.taps.kernel_w; ++kx) {
        const T* source[kDirectPixels];
#pragma unroll
        for (int i = 0; i < kDirectPixels; ++i) source[i] = work.template Source<T>(p, i, ky, kx);
        for (int c = 0; c < p.group_in; c += kIn, weights += kIn * p.out_c) {
          float w[kIn][kOut];
#pragma unroll
          for (int k = 0; k < kIn; ++k) LoadFloats(weights + k * p.out_c, w[k]);
#pragma unroll
          for (int i = 0; i < kDirectPixels; ++i) {
            if (!source[i]) continue;
            float x[kIn];
            LoadFloats(source[i] + c, x);
#pragma unroll
            for (int k = 0; k < kIn; ++k) {
#pragma unroll
              for (int n = 0; n < kOut; ++n) acc[i][n] = fmaf(x[k], w[k][n], acc[i][n]);
            }
          }
        }
      }
    }
    work.template Store<kOut, T>(p, acc);
  }
}

// One input and one output channel a group; kVector channels a load.
template <class T, int kVector>
__global__ void __launch_bounds__(kDirectThreads, 8) MaskedConvDepthwise(const DirectParams p) {
  const int slots = p.pixels.Slots();
  const int64_t blocks = DirectBlocks<kDepthwisePixels>(p, slots);
  for (int64_t item = blockIdx.x; item < blocks; item += gridDim.x) {
    DirectWork<kDepthwisePixels> work(p, item, slots);
    const int64_t channel = work.vector * kVector;
    if (channel >= p.out_c || !work.any) continue;
    work.Aim(p, channel);
    const T* weights = static_cast<const T*>(p.kernel) + channel;
    float acc[kDepthwisePixels][kVector] = {};
    for (int ky = 0; ky < p.taps.kernel_h; ++ky) {
      for (int kx = 0; kx < p.taps.kernel_w; ++kx, weights += p.out_c) {
        Vector<T, kVector> x[kDepthwisePixels];
#pragma unroll
        for (int i = 0; i < kDepthwisePixels; ++i) {
          const T* source = work.template Source<T>(p, i, ky, kx);
          x[i].bits = {};
          if (source) x[i].bits = *reinterpret_cast<const decltype(x[i].bits)*>(source);
        }
        float w[kVector];
        LoadFloats(weights, w);
#pragma unroll
        for (int i = 0; i < kDepthwisePixels; ++i) {
#pragma unroll
          for (int n = 0; n < kVector; ++n)
            acc[i][n] = fmaf(ToFloat(x[i].lanes[n]), w[n], acc[i][n]);
        }
      }
    }
    work.template Store<kVector, T>(p, acc);
  }
}

}  // namespace jaxsparse::simt
