// Stores a warpgroup's pieces, which it holds transposed: a lane has two columns of eight rows.
#pragma once

#include "cuda/core/dtype.cuh"
#include "cuda/tile/strip/fragments.cuh"
#include "cuda/tile/strip/pieces.cuh"

namespace jaxsparse {

// Where a piece goes: rows [row, p.rows) from `column` on.
struct PieceTarget {
  int list, row, column;
};

// float32 results: eight lanes have 32 contiguous bytes. `columns` are this lane's two.
template <bool Neighbours>
__device__ __forceinline__ void StorePieceF32(const StripParams& p, const PieceTarget& to,
                                              const float (&sums)[16], int column) {
  float* out = static_cast<float*>(p.out) + (int64_t{to.list} * p.rows + to.row) * p.columns;
  const int rows = p.rows - to.row;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int row = i / 2 * 8 + 2 * (threadIdx.x % 4) + i % 2;
    if (row >= rows) continue;
    const float v[2] = {sums[i / 2 * 4 + i % 2], sums[i / 2 * 4 + 2 + i % 2]};
    float* at = out + int64_t{row} * p.columns + column;
    if constexpr (Neighbours) {
      if (column < p.columns) __stcs(reinterpret_cast<float2*>(at), make_float2(v[0], v[1]));
    } else {
      if (column < p.columns) __stcs(at, v[0]);
      if (column + 8 < p.columns) __stcs(at + 8, v[1]);
    }
  }
}

// 16-bit results go through shared memory, which transposes them, 16 rows at a time: 128 contiguous
// bytes a row. All threads of the warpgroup call this, `barrier` is its own.
template <typename T>
__device__ __forceinline__ void StorePieceHalf(const StripParams& p, const PieceTarget& to,
                                               const float (&sums)[16], uint32_t staged,
                                               int barrier) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  const int put_row = lane / 16 * 8 + lane % 8, put_chunk = 2 * warp + lane / 8 % 2;
  const int row = threadIdx.x % 128 / 8, chunk = threadIdx.x % 8, column = to.column + chunk * 8;
  char* out = static_cast<char*>(p.out) +
              2 * ((int64_t{to.list} * p.rows + to.row + row) * p.columns + column);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    uint32_t v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      v[j] = DTypeTraits<T>::Pack(sums[8 * i + 2 * j], sums[8 * i + 2 * j + 1]);
    }
    ptx::NamedBarrier(barrier, 128);  // the rows before are read
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     staged + put_row * 128 + ((put_chunk ^ (put_row % 8)) * 16)),
                 "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
    ptx::NamedBarrier(barrier, 128);
    uint4 stored;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(stored.x), "=r"(stored.y), "=r"(stored.z), "=r"(stored.w)
                 : "r"(staged + row * 128 + ((chunk ^ (row % 8)) * 16))
                 : "memory");
    if (to.row + 16 * i + row < p.rows && column < p.columns) {
      __stcs(reinterpret_cast<uint4*>(out + 32 * int64_t{i} * p.columns), stored);
    }
  }
}

// One piece; `staged` has room for half of it.
template <typename T>
__device__ __forceinline__ void StorePiece(const StripParams& p, const PieceTarget& to,
                                           const float (&sums)[16], uint32_t staged, int barrier) {
  if constexpr (DTypeTraits<T>::kBytes == 4) {
    StorePieceF32<true>(p, to, sums, to.column + StripFragments<T>::Column());
  } else if (p.out_f32) {
    const int first = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    StorePieceF32<false>(p, to, sums, to.column + first);
  } else {
    StorePieceHalf<T>(p, to, sums, staged, barrier);
  }
}

}  // namespace jaxsparse
