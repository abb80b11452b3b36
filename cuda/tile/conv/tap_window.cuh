// What one GEMM row needs to gather any tap: a base offset and one validity bit per tap. Padding,
// stride, dilation, the input's dilation and the input mask all end here, so that a gather is one
// addition and one predicate.
#pragma once

#include "cuda/tile/conv/params.h"
#include "cuda/tile/conv/pixel_rows.cuh"

namespace jaxsparse {

struct TapWindow {
  uint32_t base;  // 16-byte units, modulo 2^32: tap t of the row is at base + TapOffset(t)
  uint64_t taps;  // bit t: tap t exists and its input pixel counts
};

// Offset of tap `tap` from a row's base, in units.
__device__ inline uint32_t TapOffset(const ConvParams& p, int tap) {
  const int ky = p.by_kernel_w.Quotient(tap);
  const int kx = tap - ky * p.kernel_w;
  const uint32_t dy = p.by_lhs_h.Quotient(ky * p.dilation_h);
  const uint32_t dx = p.by_lhs_w.Quotient(kx * p.dilation_w);
  return (dy * p.in_w + dx) * p.pixel_units;
}

// One axis without dilation: the taps that exist are neighbours.
struct AxisRange {
  int first, count;
};

__device__ inline AxisRange FindAxisRange(int start, int taps, int size) {
  const int first = max(0, -start);
  return {first, max(min(taps, size - start) - first, 0)};
}

__device__ inline TapWindow FindPlainWindow(const ConvParams& p, const OutputPixel& pixel) {
  const int y = pixel.y * p.stride_h - p.pad_top, x = pixel.x * p.stride_w - p.pad_left;
  const AxisRange rows = FindAxisRange(y, p.kernel_h, p.in_h);
  const AxisRange columns = FindAxisRange(x, p.kernel_w, p.in_w);
  const uint32_t base =
      ((static_cast<uint32_t>(pixel.b) * p.in_h + y) * p.in_w + x) * p.pixel_units;
  if (rows.count == 0 || columns.count == 0) return {base, 0};
  const uint64_t line = static_cast<uint64_t>(~0u >> (32 - columns.count)) << columns.first;
  const uint64_t lines = p.lines & ~uint64_t{0} >> (64 - rows.count * p.kernel_w);
  return {base, line * lines << rows.first * p.kernel_w};
}

// One axis with dilations: the taps k whose input position (start + k*dilation) / lhs exists, as
// bits, and `base` such that the position is base + k*dilation / lhs (rounded down) for each of
// them.
struct AxisTaps {
  uint32_t bits;
  int base;
};

__device__ inline AxisTaps FindAxisTaps(int start, int taps, int dilation, const Divisor& lhs,
                                        int size) {
  AxisTaps axis = {0, start};
#pragma unroll 1  // it stands in the loops over K, which the instruction caches should hold
  for (int k = 0; k < taps; ++k) {
    const int n = start + k * dilation;
    if (n < 0) continue;
    const int position = lhs.Quotient(n);
    if (position >= size || position * lhs.value != n) continue;
    axis.bits |= 1u << k;
    axis.base = position - lhs.Quotient(k * dilation);
  }
  return axis;
}

__device__ inline TapWindow FindDilatedWindow(const ConvParams& p, const OutputPixel& pixel) {
  const AxisTaps rows =
      FindAxisTaps(pixel.y * p.stride_h - p.pad_top, p.kernel_h, p.dilation_h, p.by_lhs_h, p.in_h);
  const AxisTaps columns =
      FindAxisTaps(pixel.x * p.stride_w - p.pad_left, p.kernel_w, p.dilation_w, p.by_lhs_w, p.in_w);
  uint64_t taps = 0;
#pragma unroll 1
  for (int ky = 0; ky < p.kernel_h; ++ky) {
    uint64_t line = (rows.bits >> ky) & 1 ? columns.bits : 0;
    if (line != 0 && p.x_words != nullptr) {
      const int y = rows.base + p.by_lhs_h.Quotient(ky * p.dilation_h);
      const int64_t at = (static_cast<int64_t>(pixel.b) * p.in_h + y) * ((p.in_w + 31) / 32);
#pragma unroll 1
      for (int kx = 0; kx < p.kernel_w; ++kx) {
        if (((line >> kx) & 1) == 0) continue;
        const int x = columns.base + p.by_lhs_w.Quotient(kx * p.dilation_w);
        if (((p.x_words[at + x / 32] >> (x % 32)) & 1) == 0) line &= ~(uint64_t{1} << kx);
      }
    }
    taps |= line << (ky * p.kernel_w);
  }
  const uint32_t line = static_cast<uint32_t>(pixel.b) * p.in_h + rows.base;
  return {(line * p.in_w + columns.base) * p.pixel_units, taps};
}

// `Plain`: no window is dilated, and every input pixel counts.
template <bool Plain = false>
__device__ inline TapWindow FindTapWindow(const ConvParams& p, const OutputPixel& pixel) {
  if (!pixel.active) return {0, 0};
  return Plain || p.plain ? FindPlainWindow(p, pixel) : FindDilatedWindow(p, pixel);
}

}  // namespace jaxsparse
