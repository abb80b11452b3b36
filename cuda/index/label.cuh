// 8-connected components of packed masks by a union-find over pixels that needs no locks: a pixel's
// label is the index of another pixel of its component, never a greater one, and only atomicMin
// lowers it. A root is the component's first pixel in raster order, so its row is the top of the
// bounding box.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/bits/quotient.cuh"

namespace jaxsparse {

// Packed images uint32[lists, rows, words] whose rows are those of all images of a list; an image
// is `height` rows.
struct PixelGrid {
  const uint32_t* words;
  int64_t lists;
  int32_t rows, height, width, words_per_row;

  __host__ __device__ int64_t pixels() const { return static_cast<int64_t>(rows) * width; }
  __host__ __device__ int64_t all_words() const { return lists * rows * words_per_row; }
};

// Where a lane's pixel is. A warp holds the 32 pixels of one word.
struct Pixel {
  int64_t list, word;  // `word` counts over all lists
  int32_t row, column, w, lane;

  __device__ Pixel(const PixelGrid& grid, int64_t word) : word(word), lane(threadIdx.x % 32) {
    const int64_t row_of_all = Quotient(word, grid.words_per_row);
    w = static_cast<int32_t>(word - row_of_all * grid.words_per_row);
    list = Quotient(row_of_all, grid.rows);
    row = static_cast<int32_t>(row_of_all - list * grid.rows);
    column = 32 * w + lane;
  }

  __device__ int32_t index(const PixelGrid& grid) const { return row * grid.width + column; }
};

// Reads words of one list; outside the image every pixel is inactive.
class Bits {
 public:
  __device__ Bits(const PixelGrid& grid, int64_t list)
      : grid_(grid),
        words_(grid.words + list * static_cast<int64_t>(grid.rows) * grid.words_per_row) {}

  __device__ uint32_t Word(int32_t row, int32_t w) const {
    if (w < 0 || w >= grid_.words_per_row) return 0;
    const uint32_t word = words_[static_cast<int64_t>(row) * grid_.words_per_row + w];
    const int32_t valid = grid_.width - 32 * w;
    return valid >= 32 ? word : word & ((1u << valid) - 1u);
  }

  // Word `w` shifted so that each lane finds its left (right) neighbour in its own bit.
  __device__ uint32_t Left(int32_t row, int32_t w) const {
    return Word(row, w) << 1 | Word(row, w - 1) >> 31;
  }
  __device__ uint32_t Right(int32_t row, int32_t w) const {
    return Word(row, w) >> 1 | Word(row, w + 1) << 31;
  }

 private:
  const PixelGrid& grid_;
  const uint32_t* words_;
};

// The label forest of one list.
class Forest {
 public:
  __device__ explicit Forest(int32_t* labels) : labels_(labels) {}

  __device__ int32_t Find(int32_t pixel) const {
    for (int32_t up = Load(pixel); up != pixel; up = Load(pixel)) pixel = up;
    return pixel;
  }

  // Hangs the greater root below the smaller one, again when another thread was there first.
  __device__ void Union(int32_t a, int32_t b) const {
    for (;;) {
      a = Find(a);
      b = Find(b);
      if (a == b) return;
      if (a < b) {
        const int32_t swap = a;
        a = b;
        b = swap;
      }
      const int32_t old = atomicMin(labels_ + a, b);
      if (old == a) return;
      a = old;
    }
  }

 private:
  __device__ int32_t Load(int32_t pixel) const {
    return *static_cast<volatile const int32_t*>(labels_ + pixel);
  }

  int32_t* labels_;
};

}  // namespace jaxsparse
