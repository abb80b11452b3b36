// Products of one step of the kernel gradient: sums[m][n] += a[pixel][m] * b[pixel][n] over the
// pixels of a step, both operands in shared memory with the pixel as the slow axis. Three classes
// with one shape: 16-bit tensor cores, TF32 tensor cores, float32 on the CUDA cores. Offset(row,
// unit) places 16 bytes of a pixel so that copies and reads are free of bank conflicts.
#pragma once

#include <cstdint>

#include "cuda/core/mma_sync.cuh"
#include "cuda/kernels/masked_conv/async.cuh"

namespace jaxsparse::simt {

// Four 8x8 blocks of 16-bit elements, transposed on the way: the pixel axis becomes the contiguous
// one of a fragment.
__device__ __forceinline__ void LoadTransposed(uint32_t shared, uint32_t (&out)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared));
}

__device__ __forceinline__ uint32_t RoundTf32(float v) {
  uint32_t out;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(out) : "f"(v));
  return out;
}

// Where a warp of a tensor-core tile of 128 rows stands: each warp 64 x 32, fragments of 16 x 8.
template <int kN>
struct WarpGrid {
  static constexpr int kM = 128, kThreads = 2 * kN, kFragsM = 4, kFragsN = 4;
  static constexpr int kResident = kN == 128 ? 2 : 3;  // CTAs of a multiprocessor
  int m0, n0, lane;                                    // first row and column of the warp
  float sums[kFragsM][kFragsN][4] = {};

  __device__ __forceinline__ WarpGrid() {
    const int warp = threadIdx.x / 32;
    lane = threadIdx.x % 32;
    m0 = warp % 2 * 64;
    n0 = warp / 2 * 32;
  }

  // store(m, n, pair of sums at columns n and n + 1)
  template <class Store>
  __device__ __forceinline__ void Visit(Store store) const {
#pragma unroll
    for (int i = 0; i < kFragsM; ++i) {
#pragma unroll
      for (int j = 0; j < kFragsN; ++j) {
        const int m = m0 + i * 16 + lane / 4, n = n0 + j * 8 + lane % 4 * 2;
        store(m, n, make_float2(sums[i][j][0], sums[i][j][1]));
        store(m + 8, n, make_float2(sums[i][j][2], sums[i][j][3]));
      }
    }
  }
};

// bfloat16 or float16 on the tensor cores.
template <class T, int kN>
struct HalfMma : WarpGrid<kN> {
  using Element = T;
  using WarpGrid<kN>::kM;
  static constexpr int kPixels = 64, kStages = 3;

  // Byte offset in a row of kRow elements: the low three bits of the unit turn with the pixel.
  template <int kRow>
  static __device__ __forceinline__ int Offset(int pixel, int unit) {
    return pixel * kRow * 2 + ((unit ^ (pixel & 7)) << 4);
  }
  template <int kRow>
  static constexpr int Bytes() {
    return kPixels * kRow * 2;
  }

  __device__ __forceinline__ void Step(const char* shared_a, const char* shared_b) {
    const uint32_t a = SharedAddress(shared_a), b = SharedAddress(shared_b);
    const int block = this->lane / 8, inner = this->lane % 8;
#pragma unroll
    for (int k = 0; k < kPixels; k += 16) {
      uint32_t left[this->kFragsM][4];
#pragma unroll
      for (int i = 0; i < this->kFragsM; ++i) {
        const int pixel = k + block / 2 * 8 + inner;
        LoadTransposed(a + Offset<kM>(pixel, (this->m0 + i * 16) / 8 + block % 2), left[i]);
      }
#pragma unroll
      for (int j = 0; j < this->kFragsN; j += 2) {
        uint32_t right[4];
        const int pixel = k + block % 2 * 8 + inner;
        LoadTransposed(b + Offset<kN>(pixel, (this->n0 + j * 8) / 8 + block / 2), right);
#pragma unroll
        for (int i = 0; i < this->kFragsM; ++i) {
          ptx::MmaSync<T>(this->sums[i][j], left[i], right[0], right[1]);
          ptx::MmaSync<T>(this->sums[i][j + 1], left[i], right[2], right[3]);
        }
      }
    }
  }
};

// Rows of float32 end in 32 bytes of padding: the four pixels of a fragment fall into different
// banks.
template <int kPixelCount>
struct PaddedRows {
  template <int kRow>
  static __device__ __forceinline__ int Offset(int pixel, int unit) {
    return (pixel * (kRow + 8) + unit * 4) * 4;
  }
  template <int kRow>
  static constexpr int Bytes() {
    return kPixelCount * (kRow + 8) * 4;
  }
};

// float32 rounded to TF32 on the tensor cores.
template <int kN>
struct Tf32Mma : WarpGrid<kN>, PaddedRows<24> {
  using Element = float;
  using WarpGrid<kN>::kM;
  static constexpr int kPixels = 24, kStages = 3;  // 99 KB are all that sm_86 has

  __device__ __forceinline__ void Step(const char* shared_a, const char* shared_b) {
    const float* a = reinterpret_cast<const float*>(shared_a) + this->m0 + this->lane / 4;
    const float* b = reinterpret_cast<const float*>(shared_b) + this->n0 + this->lane / 4;
#pragma unroll
    for (int k = 0; k < kPixels; k += 8) {
      const int pixel = k + this->lane % 4;
      const float* a0 = a + pixel * (kM + 8);
      const float* b0 = b + pixel * (kN + 8);
      uint32_t left[this->kFragsM][4];
#pragma unroll
      for (int i = 0; i < this->kFragsM; ++i) {
        left[i][0] = RoundTf32(a0[i * 16]);
        left[i][1] = RoundTf32(a0[i * 16 + 8]);
        left[i][2] = RoundTf32(a0[4 * (kM + 8) + i * 16]);
        left[i][3] = RoundTf32(a0[4 * (kM + 8) + i * 16 + 8]);
      }
#pragma unroll
      for (int j = 0; j < this->kFragsN; ++j) {
        const uint32_t right[2] = {RoundTf32(b0[j * 8]), RoundTf32(b0[4 * (kN + 8) + j * 8])};
#pragma unroll
        for (int i = 0; i < this->kFragsM; ++i) {
          ptx::MmaSync<TF32>(this->sums[i][j], left[i], right[0], right[1]);
        }
      }
    }
  }
};

// float32 on the CUDA cores, 8 x 8 sums a thread; a warp covers 32 x 64.
template <int kN>
struct FloatMma : PaddedRows<16> {
  using Element = float;
  static constexpr int kThreads = 2 * kN, kM = 128;
  static constexpr int kPixels = 16, kStages = 3, kResident = 512 / kThreads;
  int m0, n0;
  float sums[8][8] = {};

  __device__ __forceinline__ FloatMma() {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    m0 = warp % 4 * 32 + lane / 8 * 4;
    n0 = warp / 4 * 64 + lane % 8 * 4;
  }

  __device__ __forceinline__ void Step(const char* shared_a, const char* shared_b) {
    const float* a = reinterpret_cast<const float*>(shared_a) + m0;
    const float* b = reinterpret_cast<const float*>(shared_b) + n0;
#pragma unroll
    for (int k = 0; k < kPixels; ++k, a += kM + 8, b += kN + 8) {
      float row[8], column[8];
      *reinterpret_cast<float4*>(row) = *reinterpret_cast<const float4*>(a);
      *reinterpret_cast<float4*>(row + 4) = *reinterpret_cast<const float4*>(a + 16);
      *reinterpret_cast<float4*>(column) = *reinterpret_cast<const float4*>(b);
      *reinterpret_cast<float4*>(column + 4) = *reinterpret_cast<const float4*>(b + 32);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int j = 0; j < 8; ++j) sums[i][j] = fmaf(row[i], column[j], sums[i][j]);
      }
    }
  }

  template <class Store>
  __device__ __forceinline__ void Visit(Store store) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        store(m0 + i % 4 + i / 4 * 16, n0 + j % 4 + j / 4 * 32,
              make_float2(sums[i][j], sums[i][j + 1]));
      }
    }
  }
};

}  // namespace jaxsparse::simt
