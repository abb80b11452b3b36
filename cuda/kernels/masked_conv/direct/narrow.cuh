// Masked convolution of one to four 16-bit input channels (a photograph, a mask, a depth map) on
// tensor cores: mma.sync over (tap, channel), gathered element by element into registers.
//
// Floor:    the bytes of the active outputs written once; 3x3 with 3 -> 32 channels is 1,728
//           operations for 64 bytes.
// Tile:     16 pixels x 32 outputs a warp, K = taps * channels padded to 32 or 64. A lane's places
//           in K are the same for every pixel: their offsets are worked out once, and so are its
//           weights, which stay in registers.
// Pipeline: none; many warps, each persistent over the list, hide the look-up of a pixel and the
//           loads of its window, which are independent of each other.
// Measured (H200, 3x3, 3 -> 32 channels, bf16, 8 x 8 tiles, in a CUDA graph): 6.0 us for 28,224
//           pixels, 10.9 for 108,900 (0.4 and 1.8 by bytes; 17.0 and 40.8 on CUDA cores): a warp's
//           loads follow each other, from the list to the window.
// Grid:     four CTAs a multiprocessor x blocks of 32 outputs.
#pragma once

#include "cuda/core/mma_sync.cuh"
#include "cuda/kernels/masked_conv/pixels.cuh"
#include "cuda/tile/store/scatter.cuh"

namespace jaxsparse::simt {

inline constexpr int kNarrowThreads = 128;
inline constexpr int kNarrowChannels = 4;  // at most, of the input
inline constexpr int kNarrowOutputs = 32;  // of a warp
inline constexpr int kNarrowPixels = 16;   // of a warp
inline constexpr int kNarrowSteps = 4;     // of K, 16 each, at most

struct NarrowParams {
  ConvParams conv;  // what ScatterStore reads
  ActivePixels pixels;
  TapReader taps;  // plain
  const uint16_t *x, *kernel;
  int in_c;
};

// This lane's places in K: 2q, 2q + 1, 2q + 8 and 2q + 9 of every step, q its place in its quad.
__device__ __forceinline__ int NarrowPlace(int step, int i) {
  return step * 16 + 2 * (threadIdx.x % 4) + i % 2 + i / 2 * 8;
}

template <int kSteps>
class NarrowWindow {
 public:
  __device__ explicit NarrowWindow(const NarrowParams& p) : p_(p) {
    const int depth = p.taps.kernel_h * p.taps.kernel_w * p.in_c;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int k = NarrowPlace(s, i), tap = k / p.in_c;
        const int dy = tap / p.taps.kernel_w * p.taps.dilation_h;
        const int dx = tap % p.taps.kernel_w * p.taps.dilation_w;
        dy_[4 * s + i] = k < depth ? dy : kNoRow;  // no row of the image
        dx_[4 * s + i] = dx;
        at_[4 * s + i] = (dy * p.taps.in_w + dx) * p.in_c + k % p.in_c;
      }
    }
  }

  // Elements 4s to 4s + 3 of this lane, of the pixel whose tap (0, 0) is `first`; zeros where there
  // is nothing to read.
  struct Corner {
    int row, col;
    int64_t at;
  };
  __device__ __forceinline__ Corner Find(const Pixel& pixel, bool active) const {
    const int row = active ? p_.taps.FirstRow(pixel.y) : kNoRow / 2;
    const int col = p_.taps.FirstCol(pixel.x);
    return {row, col, ((int64_t{pixel.b} * p_.taps.in_h + row) * p_.taps.in_w + col) * p_.in_c};
  }
  __device__ __forceinline__ uint16_t Read(const Corner& first, int i) const {
    const bool inside = p_.taps.Inside(first.row + dy_[i], first.col + dx_[i]);
    return inside ? __ldg(p_.x + first.at + at_[i]) : uint16_t{0};
  }

 private:
  const NarrowParams& p_;
  int dy_[4 * kSteps], dx_[4 * kSteps], at_[4 * kSteps];
};

__device__ __forceinline__ uint32_t Pair(uint16_t low, uint16_t high) {
  return low | static_cast<uint32_t>(high) << 16;
}

// The weights of 32 outputs from `output` on, as this lane's operands.
template <int kSteps>
struct NarrowWeights {
  uint32_t b[kSteps][kNarrowOutputs / 8][2];

  __device__ NarrowWeights(const NarrowParams& p, int output) {
    const int depth = p.taps.kernel_h * p.taps.kernel_w * p.in_c;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int j = 0; j < kNarrowOutputs / 8; ++j) {
        const int n = output + 8 * j + threadIdx.x % 32 / 4;
        uint16_t w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int k = NarrowPlace(s, i);
          const bool there = k < depth && n < p.conv.out_c;
          w[i] = there ? __ldg(p.kernel + static_cast<int64_t>(k) * p.conv.out_c + n) : uint16_t{0};
        }
        b[s][j][0] = Pair(w[0], w[1]);
        b[s][j][1] = Pair(w[2], w[3]);
      }
    }
  }
};

template <class T, int kSteps>
__global__ void __launch_bounds__(kNarrowThreads, kSteps > 2 ? 3 : 4)
    MaskedConvNarrow(const __grid_constant__ NarrowParams p) {
  const int slots = p.pixels.Slots(), output = blockIdx.y * kNarrowOutputs;
  const int warps = gridDim.x * (kNarrowThreads / 32);
  int64_t first = (blockIdx.x * (kNarrowThreads / 32) + threadIdx.x / 32) * int64_t{kNarrowPixels};
  if (first >= slots) return;
  const NarrowWindow<kSteps> window(p);
  const NarrowWeights<kSteps> weights(p, output);
  const ScatterStore<T, kNarrowOutputs> store(p.conv, output);
  for (; first < slots; first += int64_t{warps} * kNarrowPixels) {
    typename NarrowWindow<kSteps>::Corner corner[2];
    int target[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      Pixel pixel = {};
      const int64_t slot = first + threadIdx.x % 32 / 4 + 8 * h;
      const bool active = slot < slots && p.pixels.Active(static_cast<int>(slot), slots, &pixel);
      corner[h] = window.Find(pixel, active);
      target[h] = active ? static_cast<int>(p.pixels.Flat(pixel)) : -1;
    }
    float sums[kNarrowOutputs / 2] = {};
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      uint32_t a[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int k = 4 * s + i / 2 * 2;
        a[i] = Pair(window.Read(corner[i % 2], k), window.Read(corner[i % 2], k + 1));
      }
#pragma unroll
      for (int j = 0; j < kNarrowOutputs / 8; ++j) {
        ptx::MmaSync<T>(sums + 4 * j, a, weights.b[s][j][0], weights.b[s][j][1]);
      }
    }
    store.Store(sums, target);
  }
}

}  // namespace jaxsparse::simt
