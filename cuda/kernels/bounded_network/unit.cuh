// What a thread computes of a stack's layer: one unit (a row, or a bundle of sixteen) of four
// images, from a state whose value o of image i lies at o * kStride + i.
//
// A row's entry is one 16-byte load of state for four multiply-adds, so loads bound it. Two threads
// share a bundle and load the same state, one line of it; an entry is then three 16-byte loads for
// thirty-two multiply-adds, 12 of a multiprocessor's load cycles for 8 of its multiply-add cycles a
// warp, and a sixteenth of a row's traffic to state. Four and sixteen rows a thread were no faster:
// more loads an entry, or too few threads to cover the weights' way from the second-level cache.
#pragma once

#include "cuda/recorder/probe.cuh"
#include "cuda/tile/load/packed_rows.cuh"

namespace jaxsparse {

// Rows of a bundle that a thread computes, and threads that share a bundle's images.
constexpr int kPart = 8, kParts = kBundle / kPart;

__device__ inline void MultiplyAdd(float weight, const float4& x, float (&sum)[4]) {
  sum[0] = fmaf(weight, x.x, sum[0]);
  sum[1] = fmaf(weight, x.y, sum[1]);
  sum[2] = fmaf(weight, x.z, sum[2]);
  sum[3] = fmaf(weight, x.w, sum[3]);
}

// Adds the bias, bounds, shows the probe and stores one row's four images.
__device__ inline void StoreRow(const float (&sum)[4], float bias, float upper, float* out,
                                SaturationProbe& probe) {
  float y[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) y[i] = Bound(sum[i] + bias, upper);
  probe.See(y);
  *reinterpret_cast<float4*>(out) = make_float4(y[0], y[1], y[2], y[3]);
}

template <int kStride, typename Index>
__device__ void RowUnit(const LayerView<Index>& view, uint32_t row, const float* in, float* out,
                        float upper, SaturationProbe& probe) {
  float sum[4] = {};
  const uint32_t end = view.End(row);
#pragma unroll 2
  for (uint32_t e = view.Begin(row); e < end; e += 4) {
    const Quad quad = view.Load(e);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int64_t at = static_cast<int64_t>(quad.index[k]) * kStride;
      MultiplyAdd(quad.weight[k], *reinterpret_cast<const float4*>(in + at), sum);
    }
  }
  StoreRow(sum, __ldg(view.bias + row), upper, out + static_cast<int64_t>(row) * kStride, probe);
}

// kPart of a bundle's rows: its first row is part * kPart. A step's weights are on their way before
// its first multiply-add.
template <int kStride, typename Index>
__device__ void BundlePart(const LayerView<Index>& view, uint32_t part, const float* in, float* out,
                           float upper, SaturationProbe& probe) {
  constexpr int kFours = kPart / 4;
  const uint32_t bundle = part / kParts, end = view.End(bundle);
  uint32_t e = view.Begin(bundle), index[4];
  const float4* weights = view.WeightsOf(e) + part % kParts * kFours;
  float sum[kPart][4] = {};
  if (e < end) view.LoadIndices(e, index);
#pragma unroll 1
  for (; e < end; e += 4, weights += kBundle) {
    float4 x[4], w[4][kFours];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      x[k] = *reinterpret_cast<const float4*>(in + static_cast<int64_t>(index[k]) * kStride);
#pragma unroll
      for (int f = 0; f < kFours; ++f) w[k][f] = __ldg(weights + k * (kBundle / 4) + f);
    }
    if (e + 4 < end) view.LoadIndices(e + 4, index);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int f = 0; f < kFours; ++f) {
        MultiplyAdd(w[k][f].x, x[k], sum[4 * f]);
        MultiplyAdd(w[k][f].y, x[k], sum[4 * f + 1]);
        MultiplyAdd(w[k][f].z, x[k], sum[4 * f + 2]);
        MultiplyAdd(w[k][f].w, x[k], sum[4 * f + 3]);
      }
    }
  }
  const uint32_t row = part * kPart;
#pragma unroll
  for (uint32_t r = 0; r < kPart; ++r) {
    StoreRow(sum[r], __ldg(view.bias + row + r), upper,
             out + static_cast<int64_t>(row + r) * kStride, probe);
  }
}

// The units first, first + step, ... of a layer: rows, or parts of bundles.
template <bool kBundles, int kStride, typename Index>
__device__ void Units(const LayerView<Index>& view, uint32_t distinct, bool bundled, uint32_t first,
                      uint32_t step, const float* in, float* out, float upper,
                      SaturationProbe& probe) {
  if (kBundles && bundled) {
    for (uint32_t u = first; u < distinct / kPart; u += step) {
      BundlePart<kStride>(view, u, in, out, upper, probe);
    }
    return;
  }
  for (uint32_t u = first; u < distinct; u += step) {
    RowUnit<kStride>(view, u, in, out, upper, probe);
  }
}

}  // namespace jaxsparse
