// Kernel gradient for every shape: a thread owns a few neighbouring elements of it and walks the
// pixels of one range.
//
// Floor: 2 * active * taps * C/groups * O FLOPs on the CUDA cores, or, depthwise, the pixels of x
// and gy read once. Tile: 4 input channels of a group x 4 outputs a thread (depthwise: 4 channels),
// 128 threads, the pixels decoded into shared memory 128 at a time, in the order of the list.
// Pipeline: none; the loads of neighbouring pixels are independent. Measured (H200): depthwise 3x3
// 64x56x56x256 bfloat16 414 us, 7x7 stride 2 3 -> 64 at 64x112x112 649 us (5.8 TFLOP/s): every
// product loads one of its factors.
#pragma once

#include "cuda/core/element.cuh"
#include "cuda/kernels/masked_conv/pixels.cuh"

namespace jaxsparse::simt {

inline constexpr int kDkernelThreads = 128;
inline constexpr int kDkernelChannels =
    4;  // input channels of a thread, where the group has as many

struct DkernelDirectParams {
  ActivePixels pixels;
  TapReader taps;
  const void* x;
  const void* gy;
  float* partial;  // [splits, kernel_h, kernel_w, group_in, out_c]
  int64_t in_c, out_c, units, unit_blocks, elements;
  int group_in, group_out, channel_steps;  // channel_steps = ceil(group_in / kDkernelChannels)
  int splits;
  bool grad_f32;
};

// One pixel, in elements.
struct DirectEntry {
  int64_t source;  // of x at tap (0, 0), as if the image had no border
  int64_t grad;    // of gy
  int row, col;    // of that input pixel; kNoRow: inactive
};

// One pixel's gradient for kWidth outputs.
template <class T, int kWidth>
__device__ __forceinline__ void LoadGrad(const DkernelDirectParams& p, int64_t offset,
                                         float (&grad)[kWidth]) {
  if (p.grad_f32) {
    LoadFloats(static_cast<const float*>(p.gy) + offset, grad);
  } else {
    LoadFloats(static_cast<const T*>(p.gy) + offset, grad);
  }
}

// The elements of one thread: tap (ky, kx), input channels c0 .. c0 + channels of a group, outputs
// o .. o + kWidth.
template <class T, int kWidth, bool kDepthwise>
class DirectSums {
 public:
  static constexpr int kRows = kDepthwise ? 1 : kDkernelChannels;

  __device__ __forceinline__ DirectSums(const DkernelDirectParams& p, int64_t unit) {
    const int64_t vectors = p.out_c / kWidth;
    const int64_t rest = unit / vectors;
    output_ = (unit - rest * vectors) * kWidth;
    const int tap = static_cast<int>(rest / p.channel_steps);
    c0_ = static_cast<int>(rest - int64_t{tap} * p.channel_steps) * kRows;
    rows_ = min(kRows, p.group_in - c0_);
    tap_ = tap;
    const int ky = tap / p.taps.kernel_w;
    dy_ = ky * p.taps.dilation_h;
    dx_ = (tap - ky * p.taps.kernel_w) * p.taps.dilation_w;
    shift_ = (int64_t{dy_} * p.taps.in_w + dx_) * p.in_c +
             (kDepthwise ? output_ : output_ / p.group_out * p.group_in + c0_);
  }

  __device__ __forceinline__ void Add(const DkernelDirectParams& p, const DirectEntry& entry) {
    if (!p.taps.Inside(entry.row + dy_, entry.col + dx_)) return;
    float grad[kWidth];
    LoadGrad<T>(p, entry.grad + output_, grad);
    const T* x = static_cast<const T*>(p.x) + entry.source + shift_;
    if constexpr (kDepthwise) {
      float v[kWidth];
      LoadFloats(x, v);
#pragma unroll
      for (int n = 0; n < kWidth; ++n) sums_[0][n] = fmaf(v[n], grad[n], sums_[0][n]);
    } else {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (r >= rows_) break;
        const float v = ToFloat(x[r]);
#pragma unroll
        for (int n = 0; n < kWidth; ++n) sums_[r][n] = fmaf(v, grad[n], sums_[r][n]);
      }
    }
  }

  __device__ __forceinline__ void Store(const DkernelDirectParams& p, float* partial) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= rows_) break;
      StoreRounded(partial + (int64_t{tap_} * p.group_in + c0_ + r) * p.out_c + output_, sums_[r]);
    }
  }

 private:
  int64_t output_, shift_;
  int tap_, c0_, rows_, dy_, dx_;
  float sums_[kRows][kWidth] = {};
};

__device__ __forceinline__ DirectEntry DecodeEntry(const DkernelDirectParams& p, int64_t slot,
                                                   int64_t end) {
  Pixel pixel;
  if (slot >= end || !p.pixels.Active(static_cast<int>(slot), static_cast<int>(end), &pixel)) {
    return {0, 0, kNoRow, 0};
  }
  const int row = p.taps.FirstRow(pixel.y), col = p.taps.FirstCol(pixel.x);
  const int64_t source = (int64_t{pixel.b} * p.taps.in_h + row) * p.taps.in_w + col;
  return {source * p.in_c, p.pixels.Flat(pixel) * p.out_c, row, col};
}

template <class T, int kWidth, bool kDepthwise>
__global__ void __launch_bounds__(kDkernelThreads)
    MaskedConvDkernelDirect(const DkernelDirectParams p) {
  __shared__ DirectEntry entries[kDkernelThreads];
  const int64_t slots = p.pixels.Slots();
  const int64_t split = blockIdx.x / p.unit_blocks;
  const int64_t unit = (blockIdx.x - split * p.unit_blocks) * kDkernelThreads + threadIdx.x;
  const int64_t begin = slots * split / p.splits, end = slots * (split + 1) / p.splits;
  const bool works = unit < p.units;
  DirectSums<T, kWidth, kDepthwise> sums(p, works ? unit : 0);
  for (int64_t first = begin; first < end; first += kDkernelThreads) {
    __syncthreads();
    entries[threadIdx.x] = DecodeEntry(p, first + threadIdx.x, end);
    __syncthreads();
    if (!works) continue;
    const int pixels = static_cast<int>(min(end - first, int64_t{kDkernelThreads}));
#pragma unroll 4
    for (int i = 0; i < pixels; ++i) sums.Add(p, entries[i]);
  }
  if (works) sums.Store(p, p.partial + split * p.elements);
}

}  // namespace jaxsparse::simt
