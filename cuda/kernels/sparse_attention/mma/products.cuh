// The products of the attention kernels: a warp multiplies 16 * Blocks rows. Sums lie as mma.sync
// leaves them: [i][j][2 * h + e] is row 16 * i + lane / 4 + 8 * h, column 8 * j + 2 * (lane % 4) +
// e.
#pragma once

#include <type_traits>

#include "cuda/core/mma_sync.cuh"
#include "cuda/kernels/sparse_attention/mma/operands.cuh"
#include "cuda/kernels/sparse_attention/mma/registers.cuh"

namespace jaxsparse {

// c += a * b in float32: the elements of the m16n8k8 product of TF32, brought together by shuffles.
__device__ __forceinline__ void MultiplyFloat32(float* c, const uint32_t (&a)[4], uint32_t b0,
                                                uint32_t b1) {
  const int lane = threadIdx.x % 32, row = lane & ~3, column = lane % 4 * 8;
#pragma unroll 1
  for (int k = 0; k < 4; ++k) {
    float left[4], right[2][2];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      left[i] = __uint_as_float(__shfl_sync(0xFFFFFFFFu, a[i], row | k));
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      right[0][e] = __uint_as_float(__shfl_sync(0xFFFFFFFFu, b0, column + 4 * e + k));
      right[1][e] = __uint_as_float(__shfl_sync(0xFFFFFFFFu, b1, column + 4 * e + k));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      c[i] = fmaf(left[i / 2], right[0][i % 2], c[i]);
      c[i] = fmaf(left[i / 2 + 2], right[1][i % 2], c[i]);
    }
  }
}

template <class T>
__device__ __forceinline__ void AttentionMma(float* c, const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
  if constexpr (std::is_same_v<T, Float32>) {
    MultiplyFloat32(c, a, b0, b1);
  } else {
    ptx::MmaSync<T>(c, a, b0, b1);
  }
}

// sums += a b^T over `panels` panels. a: Blocks * 16 rows from `a` on, of a tile of RowsA; b: a
// tile of N rows.
template <class T, int RowsA, int N, int Blocks>
__device__ __forceinline__ void MultiplyRows(float (&sums)[Blocks][N / 8][4], uint32_t a,
                                             uint32_t b, int panels) {
  const int lane = threadIdx.x % 32;
  a += PanelAt(lane % 16, lane / 16);
  b += PanelAt(lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll 1
  for (int panel = 0; panel < panels; ++panel) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t left[Blocks][4];
#pragma unroll
      for (int i = 0; i < Blocks; ++i) {
        ptx::LoadMatrices((a ^ (k * 32)) + i * 16 * kPanelBytes, left[i]);
      }
#pragma unroll
      for (int j = 0; j < N / 16; ++j) {
        uint32_t right[4];
        ptx::LoadMatrices((b ^ (k * 32)) + j * 16 * kPanelBytes, right);
#pragma unroll
        for (int i = 0; i < Blocks; ++i) {
          AttentionMma<T>(sums[i][2 * j], left[i], right[0], right[1]);
          AttentionMma<T>(sums[i][2 * j + 1], left[i], right[2], right[3]);
        }
      }
    }
    a += RowsA * kPanelBytes;
    b += N * kPanelBytes;
  }
}

// N columns of sums as the left operand of a product, rounded to T.
template <class T, int N, int Blocks>
struct LeftFragments {
  static constexpr int kSteps = N * AttentionElement<T>::kBytes / 32;
  uint32_t a[Blocks][kSteps][4];

  __device__ __forceinline__ explicit LeftFragments(const float (&sums)[Blocks][N / 8][4]) {
#pragma unroll
    for (int i = 0; i < Blocks; ++i) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) Fill(sums[i], s, a[i][s]);
    }
  }

 private:
  __device__ __forceinline__ static uint32_t Round(float v) {
    return std::is_same_v<T, TF32> ? ptx::RoundToTF32(v) : __float_as_uint(v);
  }

  // float32: the columns 2 c and 2 c + 1 that a lane holds stand for c and c + 4 of K.
  __device__ __forceinline__ static void Fill(const float (&sums)[N / 8][4], int s,
                                              uint32_t (&out)[4]) {
    if constexpr (AttentionElement<T>::kBytes == 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = sums[2 * s + i / 2] + i % 2 * 2;
        out[i] = DTypeTraits<T>::Pack(pair[0], pair[1]);
      }
    } else {
      out[0] = Round(sums[s][0]), out[1] = Round(sums[s][2]);
      out[2] = Round(sums[s][1]), out[3] = Round(sums[s][3]);
    }
  }
};

// The right operand of MultiplyColumns: two groups of 8 columns, step `s`. `b`: the panel.
template <class T>
__device__ __forceinline__ void LoadRight(uint32_t b, int s, int j, uint32_t (&out)[4]) {
  const int lane = threadIdx.x % 32;
  if constexpr (AttentionElement<T>::kBytes == 2) {
    const uint32_t at = b + PanelAt(lane % 16, lane / 16);
    ptx::LoadMatricesTransposed((at ^ (j * 32)) + s * 16 * kPanelBytes, out);
  } else {
    const int row = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t at = b + PanelAt(row + i % 2, lane / 16) + lane / 4 % 4 * 4;
      out[i] = ptx::LoadShared4((at ^ (j * 64 + i / 2 * 32)) + s * 8 * kPanelBytes);
    }
  }
}

// sums += left b: b is a tile of N rows with `panels` panels.
template <class T, int Columns, int N, int Blocks>
__device__ __forceinline__ void MultiplyColumns(float (&sums)[Blocks][Columns / 8][4],
                                                const LeftFragments<T, N, Blocks>& left, uint32_t b,
                                                int panels) {
  constexpr int kGroups = kPanelBytes / AttentionElement<T>::kBytes / 8;  // of a panel
#pragma unroll
  for (int panel = 0; panel < Columns / 8 / kGroups; ++panel) {
    if (panel >= panels) break;
#pragma unroll
    for (int s = 0; s < left.kSteps; ++s) {
#pragma unroll
      for (int j = 0; j < kGroups / 2; ++j) {
        uint32_t right[4];
        LoadRight<T>(b + panel * N * kPanelBytes, s, j, right);
#pragma unroll
        for (int i = 0; i < Blocks; ++i) {
          float (*to)[4] = sums[i] + panel * kGroups + 2 * j;
          AttentionMma<T>(to[0], left.a[i][s], right[0], right[1]);
          AttentionMma<T>(to[1], left.a[i][s], right[2], right[3]);
        }
      }
    }
  }
}

}  // namespace jaxsparse
