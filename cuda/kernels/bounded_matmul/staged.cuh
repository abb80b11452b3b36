// The values of a few images in shared memory, input by input: what eight images have at an input
// lies side by side, so an entry is one broadcast load and a 32-byte piece of a line for the eight
// lanes that hold them.
//
// Many images (column.cuh): a warp computes four rows of eight images at a time, rows of
// any length. Floor: shared memory at 128 bytes a cycle, 32 multiply-adds, of which four random
// pieces of a line leave half: 16 a cycle and multiprocessor, 3.7 T/s on an H200. With one block a
// multiprocessor staging and computing take turns, and rows are faster where they lie; so only what
// leaves room for two blocks is staged. Few images: few.cuh.
#pragma once

#include "cuda/kernels/bounded_matmul/launch.h"
#include "cuda/kernels/bounded_matmul/row.cuh"
#include "cuda/tile/load/packed_rows.cuh"

namespace jaxsparse {

constexpr int kColumnImages = 8;
constexpr int kRunOutputs = 32;

// One run of outputs of eight images, on its way from sums to rows.
using RunTile = float[kRunOutputs][kColumnImages + 1];

// Whether some of the images have a segment under a code.
template <int kImages>
__device__ bool AnyCode(const BoundedMatmulArgs& args, const int64_t* rows) {
  if (args.segments_in == 0) return false;
  bool any = false;
  for (int i = 0; i < kImages; ++i) {
    for (int64_t s = threadIdx.x; s < args.segments_in; s += blockDim.x) {
      any |= IsSet(args.codes[rows[i] * args.segments_in + s]);
    }
  }
  return __syncthreads_or(any);
}

// A value of an image that is under codes in parts.
__device__ inline float PartOf(const BoundedMatmulArgs& args, int64_t row, uint32_t i) {
  const uint8_t code =
      args.codes[row * args.segments_in + i / static_cast<uint32_t>(args.segment_in)];
  if (IsSet(code)) return code == kUpper ? args.upper_in : 0.0f;
  return args.values[row * args.n_in + i];
}

// Brings kImages rows to x[n_in][kImages]; what is under a code is filled in, not read.
template <int kImages>
__device__ void StageImages(const BoundedMatmulArgs& args, const int64_t* rows, float* x) {
  const int64_t row = rows[threadIdx.x % kImages];
  const uint32_t step = blockDim.x / kImages, n_in = static_cast<uint32_t>(args.n_in);
  if (AnyCode<kImages>(args, rows)) {
    for (uint32_t n = threadIdx.x / kImages; n < n_in; n += step) {
      x[n * kImages + threadIdx.x % kImages] = PartOf(args, row, n);
    }
  } else {
    const float* const values = args.values + row * args.n_in;
#pragma unroll 8
    for (uint32_t n = threadIdx.x / kImages; n < n_in; n += step) {
      x[n * kImages + threadIdx.x % kImages] = __ldg(values + n);
    }
  }
  __syncthreads();
}

// The outputs [run, run + 32) of eight images, by a warp: y is lane n's output run + n of each.
template <typename Index>
__device__ void StagedOutputs(const BoundedMatmulArgs& args, const LayerView<Index>& view,
                              const float* x, int64_t run, int64_t last, RunTile& tile,
                              float (&y)[kColumnImages]) {
  const int lane = threadIdx.x % 32, image = lane % kColumnImages, group = lane / kColumnImages;
  const uint32_t row = StoredRow(args, run + lane, run + lane < args.n_out);
  const uint32_t begin = view.Begin(row), end = run + lane < last ? view.End(row) : begin;
#pragma unroll 1
  for (int first = 0; first < kRunOutputs; first += 4) {
    uint32_t e = __shfl_sync(~0u, begin, first + group);
    const uint32_t behind = __shfl_sync(~0u, end, first + group);
    float sum = 0.0f;
#pragma unroll 2
    for (; e < behind; e += 4) {
      const Quad quad = view.Load(e);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        sum = fmaf(quad.weight[k], x[quad.index[k] * kColumnImages + image], sum);
      }
    }
    tile[first + group][image] = sum;
  }
  __syncwarp();
  const float bias = __ldg(view.bias + row);
#pragma unroll
  for (int i = 0; i < kColumnImages; ++i) y[i] = Bound(tile[lane][i] + bias, args.upper);
  __syncwarp();
}

}  // namespace jaxsparse
