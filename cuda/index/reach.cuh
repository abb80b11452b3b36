// The words of the pixels that a convolution reads, from the words of its output's mask: a word is
// the OR of as many shifted words as the window has taps. At stride 1 a tap is two loads and a
// funnel shift, at stride 2 a spread besides; other strides set its bits one by one.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/index/strips.h"

namespace jaxsparse {

class ReachWords {
 public:
  __device__ ReachWords(const StripArgs& args, int64_t mask)
      : args_(args),
        reach_(args.reach),
        row_words_((args.reach.width + 31) / 32),
        first_row_(mask * args.rows),
        first_image_(mask * args.images) {}

  // Word `w` of a row of the mask.
  __device__ uint32_t Load(int32_t row, int32_t w) const {
    const int32_t image = args_.by_height.Quotient(row), y = row - image * args_.height;
    const uint32_t* words = reach_.words + (first_image_ + image) * reach_.height * row_words_;
    const ReachSource::Axis& rows = reach_.rows;
    const int32_t first = y * rows.lhs_dilation + rows.pad;
    uint32_t bits = 0;
#pragma unroll 1
    for (int32_t k = 0; k < rows.taps; ++k) {
      const int32_t at = first - k * rows.dilation;
      const int32_t out = rows.stride == 1 ? at : at / rows.stride;
      if (at < 0 || out >= reach_.height || out * rows.stride != at) continue;
      bits |= Spread(words + int64_t{out} * row_words_, w);
    }
    const int32_t valid = args_.width - 32 * w;
    if (valid < 32) bits &= (1u << valid) - 1u;
    if (reach_.keep == nullptr) return bits;
    return bits & __ldg(reach_.keep + (first_row_ + row) * args_.row_words + w);
  }

 private:
  // What a row of the output reads of word `w` of a row.
  __device__ uint32_t Spread(const uint32_t* row, int32_t w) const {
    const ReachSource::Axis& columns = reach_.columns;
    const bool shifts = columns.stride == 1 && columns.lhs_dilation == 1;
    int32_t first = 32 * w * columns.lhs_dilation + columns.pad;
    uint32_t bits = 0;
#pragma unroll 3
    for (int32_t k = 0; k < columns.taps; ++k, first -= columns.dilation) {
      bits |= shifts ? Window(row, first) : SpreadTap(row, first);
    }
    return bits;
  }

  // Bit n is that of output pixel (first + n * lhs_dilation) / stride, where it exists; one of the
  // two is 1.
  __device__ uint32_t SpreadTap(const uint32_t* row, int32_t first) const {
    const int32_t stride = reach_.columns.stride, step = reach_.columns.lhs_dilation;
    uint32_t bits = 0;
    if (step == 1) {  // output pixel `out` and those after it are bit n and every stride-th one
      const int32_t out = (max(first, 0) + stride - 1) / stride, n = out * stride - first;
      if (n >= 32) return 0;
      const uint32_t from = Window(row, out);
      if (stride == 2) return EveryOther(from) << n;
#pragma unroll 1
      for (int32_t k = 0; n + k * stride < 32; ++k) bits |= (from >> k & 1u) << (n + k * stride);
      return bits;
    }
    int32_t n = (max(-first, 0) + step - 1) / step;
#pragma unroll 1
    for (; n < 32 && first + n * step < reach_.width; ++n) {
      const int32_t out = first + n * step;
      bits |= (__ldg(row + out / 32) >> (out % 32) & 1u) << n;
    }
    return bits;
  }

  // The low 16 bits at the even places.
  __device__ static uint32_t EveryOther(uint32_t bits) {
    bits &= 0xffffu;
    bits = (bits | bits << 8) & 0x00ff00ffu;
    bits = (bits | bits << 4) & 0x0f0f0f0fu;
    bits = (bits | bits << 2) & 0x33333333u;
    return (bits | bits << 1) & 0x55555555u;
  }

  // 32 bits of a row of the output from bit `first` on; those outside of it are zero.
  __device__ uint32_t Window(const uint32_t* row, int32_t first) const {
    const int32_t word = first >> 5;
    return __funnelshift_r(Word(row, word), Word(row, word + 1), static_cast<uint32_t>(first));
  }
  __device__ uint32_t Word(const uint32_t* row, int32_t word) const {
    return word >= 0 && word < row_words_ ? __ldg(row + word) : 0u;
  }

  const StripArgs& args_;
  const ReachSource& reach_;
  int32_t row_words_;
  int64_t first_row_, first_image_;
};

}  // namespace jaxsparse
