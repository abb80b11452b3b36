// Masked convolution as a matrix product in float32 on the CUDA cores: rows are active pixels, K
// runs over (tap, channel), columns are output channels.
//
// Floor: 2 * active * taps * C * O FLOPs at 51 TFLOP/s (measured, H200). Tile: 64 pixels x 128
// outputs, or 128 x 64, 8 x 8 sums a thread; 16 channels a step. A step costs a warp 1024 FFMA and
// 64 shared loads of 16 bytes, so that arithmetic is what limits. Pipeline: three stages of
// cp.async; a row is gathered pixel by pixel, phantom pixels arrive as zeros. Persistent over the
// list, output tiles of the same pixels next to each other. Measured (H200, 3x3, 256 -> 256,
// blobs): 39 TFLOP/s at pixel density 1, 37 at .5, 36 at .3 (76 to 70 % of the floor's rate). Few
// active rows leave the last wave thin: 24 at 10240 rows, 22 at 4916.
#pragma once

#include "cuda/core/element.cuh"
#include "cuda/kernels/masked_conv/async.cuh"
#include "cuda/kernels/masked_conv/pixels.cuh"

namespace jaxsparse::simt {

struct FfmaParams {
  ActivePixels pixels;
  TapReader taps;
  const float* x;
  const float* kernel;
  const float* bias;
  const float* residual;
  float* out;
  int in_c, out_c, depth;  // depth = taps * in_c
  int column_tiles;
  Activation activation;
};

template <int kTileM, int kTileN>
struct FfmaTile {
  static constexpr int kM = kTileM, kN = kTileN, kK = 16, kStages = 3;
  static constexpr int kThreads = kM * kN / 64;
  static constexpr int kStrideA = kK + 4;  // floats; four rows of a warp fall into different banks
  static constexpr int kFloatsA = kM * kStrideA, kFloatsB = kK * kN;
  static constexpr int kSharedBytes = kStages * (kFloatsA + kFloatsB) * 4;
  static constexpr int kRowStep = kThreads / 4;  // four threads load one row's 16 channels
  static constexpr int kRowLoads = kM / kRowStep;
  static constexpr int kColumnThreads = kN / 4;
  static constexpr int kDepthLoads = kK * kColumnThreads / kThreads;
};

// The 128 pixels of an output tile, decoded once.
template <class Tile>
struct FfmaRows {
  int b[Tile::kM], row[Tile::kM], col[Tile::kM];  // b < 0: nothing there
  int64_t out[Tile::kM];

  __device__ __forceinline__ void Decode(const FfmaParams& p, int first, int slots) {
    for (int r = threadIdx.x; r < Tile::kM; r += Tile::kThreads) {
      Pixel pixel;
      const bool active = p.pixels.Active(first + r, slots, &pixel);
      b[r] = active ? pixel.b : -1;
      row[r] = active ? p.taps.FirstRow(pixel.y) : 0;
      col[r] = active ? p.taps.FirstCol(pixel.x) : 0;
      out[r] = active ? p.pixels.Flat(pixel) : -1;
    }
  }
};

// Gathers one step of both operands: 16 of the (tap, channel) depth.
template <class Tile>
class FfmaLoad {
 public:
  __device__ __forceinline__ FfmaLoad(const FfmaParams& p, const FfmaRows<Tile>& rows, int column)
      : p_(p), rows_(rows), c_((threadIdx.x % 4) * 4), depth_(threadIdx.x / Tile::kColumnThreads) {
    const int n = column + (threadIdx.x % Tile::kColumnThreads) * 4;
    column_read_ = n < p.out_c;
    weights_ = p.kernel + static_cast<int64_t>(depth_) * p.out_c + (column_read_ ? n : 0);
    SkipTaps();
    FindSources();
  }

  __device__ __forceinline__ void Step(float* a, float* b) {
#pragma unroll
    for (int i = 0; i < Tile::kRowLoads; ++i) {
      const int row = threadIdx.x / 4 + i * Tile::kRowStep;
      const bool read = source_[i] >= 0;
      CopyAsync16(SharedAddress(a + row * Tile::kStrideA + (threadIdx.x % 4) * 4),
                  p_.x + (read ? source_[i] + c_ : 0), read);
    }
    constexpr int kRowsB = Tile::kThreads / Tile::kColumnThreads;
    float* target = b + threadIdx.x * 4;
#pragma unroll
    for (int i = 0; i < Tile::kDepthLoads; ++i) {
      const bool read = column_read_ && depth_ + i * kRowsB < p_.depth;
      CopyAsync16(SharedAddress(target + i * kRowsB * Tile::kN),
                  read ? weights_ + static_cast<int64_t>(i * kRowsB) * p_.out_c : p_.kernel, read);
    }
    depth_ += Tile::kK;
    weights_ += static_cast<int64_t>(Tile::kK) * p_.out_c;
    c_ += Tile::kK;
    if (SkipTaps()) FindSources();
  }

 private:
  // Brings c_ back into one pixel's channels; true when the tap changed.
  __device__ __forceinline__ bool SkipTaps() {
    bool moved = false;
    for (; c_ >= p_.in_c; c_ -= p_.in_c, moved = true) {
      if (++kx_ == p_.taps.kernel_w) {
        kx_ = 0;
        ++ky_;
      }
    }
    return moved;
  }

  __device__ __forceinline__ void FindSources() {
#pragma unroll
    for (int i = 0; i < Tile::kRowLoads; ++i) {
      const int row = threadIdx.x / 4 + i * Tile::kRowStep;
      int64_t pixel = -1;
      if (rows_.b[row] >= 0 && ky_ < p_.taps.kernel_h) {
        pixel = p_.taps.Source(rows_.b[row], rows_.row[row] + ky_ * p_.taps.dilation_h,
                               rows_.col[row] + kx_ * p_.taps.dilation_w);
      }
      source_[i] = pixel < 0 ? -1 : pixel * p_.in_c;
    }
  }

  const FfmaParams& p_;
  const FfmaRows<Tile>& rows_;
  int c_, depth_, ky_ = 0, kx_ = 0;
  bool column_read_;
  const float* weights_;
  int64_t source_[Tile::kRowLoads];  // element of the tap's pixel, -1: phantom
};

// 8 x 8 sums a thread. A warp covers 32 rows x 64 columns: rows m0 + 4*i, columns n0 + 32*j.
template <class Tile>
class FfmaMma {
 public:
  __device__ __forceinline__ FfmaMma() {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    m0 = warp % (Tile::kM / 32) * 32 + lane / 8;
    n0 = warp / (Tile::kM / 32) * 64 + lane % 8 * 4;
  }

  __device__ __forceinline__ void Step(const float* a, const float* b) {
#pragma unroll
    for (int k = 0; k < Tile::kK; k += 4) {
      float4 rows[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        rows[i] = *reinterpret_cast<const float4*>(a + (m0 + 4 * i) * Tile::kStrideA + k);
      }
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const float4 left = *reinterpret_cast<const float4*>(b + (k + q) * Tile::kN + n0);
        const float4 right = *reinterpret_cast<const float4*>(b + (k + q) * Tile::kN + n0 + 32);
        const float column[8] = {left.x,  left.y,  left.z,  left.w,
                                 right.x, right.y, right.z, right.w};
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const float v = q == 0 ? rows[i].x : q == 1 ? rows[i].y : q == 2 ? rows[i].z : rows[i].w;
#pragma unroll
          for (int n = 0; n < 8; ++n) sums[i][n] = fmaf(v, column[n], sums[i][n]);
        }
      }
    }
  }

  __device__ __forceinline__ void Store(const FfmaParams& p, const FfmaRows<Tile>& rows,
                                        int column) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int n = column + n0 + half * 32;
      if (n >= p.out_c) continue;
      float bias[4] = {};
      if (p.bias) LoadFloats(p.bias + n, bias);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int64_t pixel = rows.out[m0 + 4 * i];
        if (pixel < 0) continue;
        float v[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) v[j] = sums[i][half * 4 + j] + bias[j];
        if (p.residual) AddElements<4, float>(p.residual, true, pixel * p.out_c + n, v);
#pragma unroll
        for (int j = 0; j < 4; ++j) v[j] = Activate(p.activation, v[j]);
        StoreRounded(p.out + pixel * p.out_c + n, v);
      }
    }
  }

  int m0, n0;
  float sums[8][8] = {};
};

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 512 / Tile::kThreads)
    MaskedConvFfma(const FfmaParams p) {
  extern __shared__ __align__(16) float shared[];
  __shared__ FfmaRows<Tile> rows;
  float* const shared_b = shared + Tile::kStages * Tile::kFloatsA;
  const int slots = p.pixels.Slots();
  const int64_t tiles = (int64_t{slots} + Tile::kM - 1) / Tile::kM * p.column_tiles;
  const int steps = (p.depth + Tile::kK - 1) / Tile::kK;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int row_tile = static_cast<int>(tile / p.column_tiles);
    const int column = static_cast<int>(tile - int64_t{row_tile} * p.column_tiles) * Tile::kN;
    rows.Decode(p, row_tile * Tile::kM, slots);
    __syncthreads();
    FfmaLoad<Tile> load(p, rows, column);
    FfmaMma<Tile> mma;
#pragma unroll
    for (int s = 0; s < Tile::kStages - 1; ++s) {
      if (s < steps) load.Step(shared + s * Tile::kFloatsA, shared_b + s * Tile::kFloatsB);
      CommitCopies();
    }
    int read = 0, write = Tile::kStages - 1;
    for (int step = 0; step < steps; ++step) {
      WaitCopies<Tile::kStages - 2>();
      __syncthreads();
      if (step + Tile::kStages - 1 < steps) {
        load.Step(shared + write * Tile::kFloatsA, shared_b + write * Tile::kFloatsB);
      }
      CommitCopies();
      mma.Step(shared + read * Tile::kFloatsA, shared_b + read * Tile::kFloatsB);
      read = read + 1 == Tile::kStages ? 0 : read + 1;
      write = write + 1 == Tile::kStages ? 0 : write + 1;
    }
    mma.Store(p, rows, column);
    __syncthreads();  // before the next tile's pixels overwrite these
  }
}

}  // namespace jaxsparse::simt
