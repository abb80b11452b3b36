// The values of a few images in shared memory, input by input: what eight images have at an input
// lies side by side, so an entry is one broadcast load and a 32-byte piece of a line for the eight
// lanes that hold them.
//
// Many images (bounded_column.cuh): a warp computes four rows of eight images at a time, rows of
// any length. Floor: shared memory at 128 bytes a cycle, 32 multiply-adds, of which four random
// pieces of a line leave half: 16 a cycle and multiprocessor, 3.7 T/s on an H200. Few images: the
// 32 lanes share one row of eight images, or of one, and add up; a block computes some dozens of
// outputs, so that a batch of one is spread over the device. Codes are then recorded by a launch of
// its own, since no block sees a whole segment.
#pragma once

#include "cuda/kernels/bounded_entries.cuh"
#include "cuda/kernels/bounded_matmul.h"
#include "cuda/kernels/bounded_row.cuh"

namespace jaxsparse {

constexpr int kColumnImages = 8;
constexpr int kFewThreads = 512, kFewWarps = kFewThreads / 32;
constexpr int kRunOutputs = 32;

// One run of outputs of eight images, on its way from sums to rows.
using RunTile = float[kRunOutputs][kColumnImages + 1];

// Whether some of the images have a segment under a code.
__device__ inline bool AnyCode(const BoundedMatmulArgs& args, const int64_t* rows) {
  bool any = false;
  for (int i = 0; i < kColumnImages; ++i) {
    for (int64_t s = threadIdx.x; s < args.segments_in; s += blockDim.x) {
      any |= args.codes[rows[i] * args.segments_in + s] != kMixed;
    }
  }
  return __syncthreads_or(any);
}

// A value of an image that is under codes in parts.
__device__ inline float PartOf(const BoundedMatmulArgs& args, int64_t row, uint32_t i) {
  const uint8_t code =
      args.codes[row * args.segments_in + i / static_cast<uint32_t>(args.segment_in)];
  if (code != kMixed) return code == kUpper ? args.upper_in : 0.0f;
  return args.values[row * args.n_in + i];
}

// Brings kImages rows to x[n_in][kImages]; what is under a code is filled in, not read.
template <int kImages>
__device__ void StageImages(const BoundedMatmulArgs& args, const int64_t* rows, float* x) {
  const int64_t row = rows[threadIdx.x % kImages];
  const uint32_t step = blockDim.x / kImages, n_in = static_cast<uint32_t>(args.n_in);
  if (AnyCode(args, rows)) {
    for (uint32_t n = threadIdx.x / kImages; n < n_in; n += step) {
      x[n * kImages + threadIdx.x % kImages] = PartOf(args, row, n);
    }
  } else {
    const float* const values = args.values + row * args.n_in;
#pragma unroll 4
    for (uint32_t n = threadIdx.x / kImages; n < n_in; n += step) {
      x[n * kImages + threadIdx.x % kImages] = __ldg(values + n);
    }
  }
  __syncthreads();
}

// The row that output n takes; the last one behind them.
__device__ inline uint32_t RowOf(const BoundedMatmulArgs& args, int64_t n) {
  const int64_t named = args.expand != nullptr && n < args.n_out ? __ldg(args.expand + n) : n;
  return static_cast<uint32_t>(min(named, args.distinct - 1));
}

// The outputs [run, run + 32) of eight images, by a warp: y is lane n's output run + n of each.
template <typename Index>
__device__ void StagedOutputs(const BoundedMatmulArgs& args, const LayerView<Index>& view,
                              const float* x, int64_t run, int64_t last, RunTile& tile,
                              float (&y)[kColumnImages]) {
  const int lane = threadIdx.x % 32, image = lane % kColumnImages, group = lane / kColumnImages;
  const uint32_t row = RowOf(args, run + lane);
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

// One row of kImages images, by a warp: in lane i the sum of image i % kImages.
template <int kImages, typename Index>
__device__ float SharedSum(const LayerView<Index>& view, const float* x, uint32_t row) {
  const uint32_t lane = threadIdx.x % 32, end = view.End(row);
  float sum = 0.0f;
#pragma unroll 2
  for (uint32_t e = view.Begin(row) + lane / kImages * 4; e < end; e += 4 * (32 / kImages)) {
    const Quad quad = view.Load(e);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      sum = fmaf(quad.weight[k], x[quad.index[k] * kImages + lane % kImages], sum);
    }
  }
#pragma unroll
  for (int step = kImages; step < 32; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
  return sum;
}

// Block: kImages images x `many` outputs, a multiple of a run. Every value is written; codes are
// all 0 where none are recorded.
template <int kImages, typename Index>
__global__ void __launch_bounds__(kFewThreads)
    BoundedFew(const __grid_constant__ BoundedMatmulArgs args, uint32_t chunks, uint32_t many) {
  extern __shared__ float4 memory[];
  __shared__ int64_t rows[kColumnImages];
  __shared__ RunTile tile;
  float* const x = reinterpret_cast<float*>(memory);
  const int64_t image = static_cast<int64_t>(blockIdx.x / chunks) * kImages;
  const int64_t first = int64_t{blockIdx.x % chunks} * many, last = min(first + many, args.n_out);
  if (threadIdx.x < kColumnImages) rows[threadIdx.x] = min(image + threadIdx.x, args.batch - 1);
  __syncthreads();
  StageImages<kImages>(args, rows, x);
  const LayerView<Index> view = ViewOfLayer<Index>(args);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int64_t run = first; run < last; run += kRunOutputs) {
    for (int64_t n = run + warp; n < min(run + kRunOutputs, last); n += kFewWarps) {
      const uint32_t row = RowOf(args, n);
      const float sum = SharedSum<kImages>(view, x, row);
      if (lane < kImages) tile[n - run][lane] = Bound(sum + __ldg(view.bias + row), args.upper);
    }
    __syncthreads();
    if (warp < kImages && image + warp < args.batch && run + lane < last) {
      args.out[(image + warp) * args.n_out + run + lane] = tile[lane][warp];
    }
    __syncthreads();
  }
  if (args.record || threadIdx.x >= kImages || image + threadIdx.x >= args.batch) return;
  uint8_t* const codes = args.out_codes + (image + threadIdx.x) * args.segments;
  for (int64_t s = (first + args.segment - 1) / args.segment; s * args.segment < last; ++s) {
    codes[s] = kMixed;
  }
}

}  // namespace jaxsparse
