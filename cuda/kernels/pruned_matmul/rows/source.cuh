// Where the rows of x come from: a matrix, or an image whose im2col row is virtual, its addresses
// computed while loading.
#pragma once

#include <cstdint>

#include "cuda/core/geometry.h"

namespace jaxsparse {

// x[m, k] in its own layout.
template <typename T>
class MatrixSource {
 public:
  struct Row {
    int64_t offset;  // -1: no such row
  };
  struct Column {
    int32_t offset;
  };

  __device__ MatrixSource(const void* x, int64_t m, int64_t k, const ConvGeometry&)
      : x_(static_cast<const T*>(x)), m_(m), k_(k) {}

  __device__ Row RowAt(int64_t row) const { return {row < m_ ? row * k_ : -1}; }
  __device__ Column ColumnAt(int32_t column) const { return {column < k_ ? column : -1}; }

  // The element, or nullptr where there is none.
  __device__ const T* At(const Row& row, const Column& column) const {
    return row.offset < 0 || column.offset < 0 ? nullptr : x_ + row.offset + column.offset;
  }

 private:
  const T* x_;
  int64_t m_, k_;
};

// Row: an output pixel. Column: (ky * kernel_w + kx) * in_c + c. What lies outside the image, or
// between the pixels of a dilated one, reads as zero.
template <typename T>
class ImageSource {
 public:
  struct Row {
    int64_t offset;  // of the image; -1: no such pixel
    int32_t y, x;    // of tap (0, 0)
  };
  struct Column {
    int32_t y, x, c;  // c < 0: no such column
  };

  __device__ ImageSource(const void* x, int64_t m, int64_t k, const ConvGeometry& geometry)
      : x_(static_cast<const T*>(x)), m_(m), k_(k), g_(geometry) {}

  __device__ Row RowAt(int64_t row) const {
    if (row >= m_) return {-1, 0, 0};
    const int32_t pixels = static_cast<int32_t>(g_.out_h * g_.out_w);
    const int64_t image = row / pixels;
    const int32_t pixel = static_cast<int32_t>(row - image * pixels);
    const int32_t width = static_cast<int32_t>(g_.out_w), oy = pixel / width;
    return {image * g_.in_h * g_.in_w * g_.in_c, oy * g_.stride_h - g_.pad_top,
            (pixel - oy * width) * g_.stride_w - g_.pad_left};
  }

  __device__ Column ColumnAt(int32_t column) const {
    if (column >= k_) return {0, 0, -1};
    const int32_t channels = static_cast<int32_t>(g_.in_c), tap = column / channels;
    const int32_t ky = tap / g_.kernel_w;
    return {ky * g_.dilation_h, (tap - ky * g_.kernel_w) * g_.dilation_w, column - tap * channels};
  }

  __device__ const T* At(const Row& row, const Column& column) const {
    int32_t y = row.y + column.y, x = row.x + column.x;
    if (row.offset < 0 || column.c < 0 || y < 0 || x < 0) return nullptr;
    if (g_.lhs_dilation_h != 1 || g_.lhs_dilation_w != 1) {
      if (y % g_.lhs_dilation_h != 0 || x % g_.lhs_dilation_w != 0) return nullptr;
      y /= g_.lhs_dilation_h;
      x /= g_.lhs_dilation_w;
    }
    if (y >= g_.in_h || x >= g_.in_w) return nullptr;
    return x_ + row.offset + (static_cast<int64_t>(y) * g_.in_w + x) * g_.in_c + column.c;
  }

 private:
  const T* x_;
  int64_t m_, k_;
  const ConvGeometry& g_;
};

}  // namespace jaxsparse
