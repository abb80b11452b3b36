// The first layer of a stack: raw images, row by row in memory, to folded state; and, for stacks of
// bundles, the images turned into state as they are, so that the first layer is one like all
// others (panel.cuh reads them unturned, where it may).
//
// Floor: the images once (60,000 x 1024: 246 MB, 57 us at 4.3 TB/s; x 65536: 15.7 GB, 3.7 ms);
// state out is a sixteenth. A thread owns one output of eight images: an entry is eight independent
// gathers, 32 neighbouring outputs gather from the same rows, and eight results are one 32-byte
// sector. Predicted: the floor where neighbouring outputs read neighbouring inputs (the challenge's
// layers do), a sector a gather where they do not. Measured, with one more layer: 3.9 ms at 16384
// neurons, 13 ms at 65536: three to four times the floor; a row passes through the first-level
// cache twice, for outputs j and j + 1. Turning images costs a trip through memory more: 119 us for
// 60,000 x 1024, 467 for x 4096, 4.1 to 4.2 TB/s.
#pragma once

#include "cuda/kernels/bounded_network/state.cuh"

namespace jaxsparse {

constexpr int kFirstImages = 8;
constexpr int kFirstThreads = 256;

template <typename Index>
__global__ void __launch_bounds__(kFirstThreads)
    FirstLayer(StackView stack, const float* __restrict__ x, uint32_t batch, uint32_t n_in,
               uint32_t distinct, float* to) {
  const uint32_t padded = (distinct + 31) / 32 * 32;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kFirstThreads + threadIdx.x;
  const uint32_t o = static_cast<uint32_t>(thread % padded);
  const int64_t group = thread / padded, image = group * kFirstImages;
  if (image >= batch || o >= min(distinct, Distinct(stack, 0))) return;
  const LayerView<Index> layer = LayerOf<Index>(stack, 0, n_in);
  const float* rows[kFirstImages];
#pragma unroll
  for (int i = 0; i < kFirstImages; ++i) {
    rows[i] = x + min(image + i, static_cast<int64_t>(batch) - 1) * n_in;
  }
  float sum[kFirstImages] = {};
  const uint32_t end = layer.End(o);
  for (uint32_t e = layer.Begin(o); e < end; e += 4) {
    const Quad quad = layer.Load(e);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < kFirstImages; ++i) {
        sum[i] = fmaf(quad.weight[k], __ldg(rows[i] + quad.index[k]), sum[i]);
      }
    }
  }
  const float bias = __ldg(layer.bias + o), upper = __ldg(stack.uppers);
  float* state = to + StateOffset(static_cast<uint32_t>(image), o, stack.widest);
#pragma unroll
  for (int i = 0; i < kFirstImages; ++i) sum[i] = Bound(sum[i] + bias, upper);
  reinterpret_cast<float4*>(state)[0] = make_float4(sum[0], sum[1], sum[2], sum[3]);
  reinterpret_cast<float4*>(state)[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
}

// Block: 32 images x 128 inputs; rows come in whole lines, and a line of state is 32 images.
__global__ void __launch_bounds__(kFirstThreads)
    TurnImages(StackView stack, const float* __restrict__ x, uint32_t batch, uint32_t n_in,
               float* to) {
  constexpr int kWarps = kFirstThreads / 32, kInputs = 128;
  __shared__ float tile[kInputs][kSlots + 1];
  const uint32_t chunks = max((n_in + kInputs - 1) / kInputs, 1u);
  const uint32_t first = blockIdx.x % chunks * kInputs, slot = blockIdx.x / chunks * kSlots;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (uint32_t i = warp; i < kSlots; i += kWarps) {
    const float* row = x + static_cast<int64_t>(min(slot + i, batch - 1)) * n_in;
#pragma unroll
    for (uint32_t n = lane; n < kInputs; n += 32) {
      tile[n][i] = first + n < n_in ? __ldg(row + first + n) : 0.0f;
    }
  }
  __syncthreads();
  for (uint32_t n = warp; n < kInputs && first + n < n_in; n += kWarps) {
    to[StateOffset(slot + lane, first + n, stack.widest)] = tile[n][lane];
  }
}

}  // namespace jaxsparse
