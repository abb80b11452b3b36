// RowStore: one warp's accumulators, scaled and rounded, to rows of a matrix.
#pragma once

#include <type_traits>

#include "cuda/core/dtype.cuh"
#include "cuda/tile/store/scatter.cuh"

namespace jaxsparse {

// This thread's two rows of the tile: where they go (-1: nowhere), and their factors; a row that
// does not count is stored as zeros, whatever its sum is.
struct StoredRows {
  int row[2] = {-1, -1};
  float factor[2] = {1.0f, 1.0f};
  bool counts[2] = {true, true};
};

template <typename T, int TileN>
class RowStore {
 public:
  // `columns` of the matrix; it is float32 where `f32` holds, else of T.
  __device__ RowStore(void* out, int columns, bool f32) : out_(out), columns_(columns), f32_(f32) {}

  // Scales the accumulators; rows that do not count become zeros.
  __device__ static void Scale(float (&acc)[TileN / 2], const StoredRows& to) {
    const bool plain = to.counts[0] && to.counts[1] && to.factor[0] == 1.0f && to.factor[1] == 1.0f;
    if (__all_sync(0xFFFFFFFFu, plain)) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int j = 0; j < TileN / 8; ++j) {
        float* v = &acc[4 * j + 2 * h];
        v[0] = to.counts[h] ? v[0] * to.factor[h] : 0.0f;
        v[1] = to.counts[h] ? v[1] * to.factor[h] : 0.0f;
      }
    }
  }

  // Scales and stores; `column` is the tile's first one.
  __device__ void Store(float (&acc)[TileN / 2], const StoredRows& to, int column) const {
    Scale(acc, to);
    if (f32_) {
      StoreF32(acc, to, column);
    } else if constexpr (DTypeTraits<T>::kBytes == 2) {
      StoreHalf(acc, to, column);
    }
  }

 private:
  // Pairs of columns: a quad writes 32 contiguous bytes.
  __device__ void StoreF32(const float (&acc)[TileN / 2], const StoredRows& to, int column) const {
    const int first = column + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (to.row[h] < 0) continue;
      float* row = static_cast<float*>(out_) + int64_t{to.row[h]} * columns_;
#pragma unroll
      for (int j = 0; j < TileN / 8; ++j) {
        const int c = first + 8 * j;
        if (c < columns_) {
          *reinterpret_cast<float2*>(row + c) =
              make_float2(acc[4 * j + 2 * h], acc[4 * j + 2 * h + 1]);
        }
      }
    }
  }

  // Quads exchange pairs of columns for runs of eight: 16 bytes a lane, 64 contiguous bytes a quad.
  __device__ void StoreHalf(const float (&acc)[TileN / 2], const StoredRows& to, int column) const {
    const int first = column + 8 * (threadIdx.x % 4);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      char* row = static_cast<char*>(out_) + int64_t{max(to.row[h], 0)} * columns_ * 2;
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
        if (to.row[h] >= 0 && c < columns_) {
          *reinterpret_cast<uint4*>(row + 2 * c) = make_uint4(v[0], v[1], v[2], v[3]);
        }
      }
    }
  }

  void* out_;
  int columns_;
  bool f32_;
};

}  // namespace jaxsparse
