// The row and slab dataflows: a block per input row, or per row and slab of outputs.
//
// Floor: an undecided row in and out once, 8 bytes a neuron; the packed rows from L2 by every
// block, 6 bytes an entry: 60,000 rows of 1024 neurons read 11.8 GB of entries a layer,
// predicted 1.7 ms, measured 3.6. A block copies its row to shared memory (a segment under a code
// is filled, not read) where it fits, and a thread owns an output; a row under one code as a whole
// is a constant, so nothing is gathered. Measured over 40 layers of the challenge (no folding, no
// proofs): 144.8 ms without recorder, 87.5 ms with it.
#pragma once

#include "cuda/kernels/bounded_matmul/launch.h"
#include "cuda/recorder/segments.cuh"
#include "cuda/tile/load/packed_rows.cuh"

namespace jaxsparse {

constexpr int kRowThreads = 256;

template <typename Index>
__device__ LayerView<Index> ViewOfLayer(const BoundedMatmulArgs& args) {
  LayerView<Index> view;
  view.starts = args.starts;
  view.indices = static_cast<const Index*>(args.indices);
  view.weights = args.weights;
  view.bias = args.bias;
  view.last = args.n_in == 0 ? 0 : static_cast<uint32_t>(args.n_in - 1);
  view.entries = args.n_in == 0 ? 0 : static_cast<uint32_t>(args.entries) & ~3u;
  return view;
}

// The stored row of output n, whatever `expand` says.
__device__ inline uint32_t StoredRow(const BoundedMatmulArgs& args, int64_t n, bool valid) {
  const uint32_t named = static_cast<uint32_t>(valid && args.expand ? __ldg(args.expand + n) : n);
  return min(named, static_cast<uint32_t>(args.distinct - 1));
}

// One input row: in shared memory, or where it lies with its codes looked up.
struct InputRow {
  const float* values;
  const uint8_t* codes;  // nullptr: nothing is under a code
  uint32_t segment;
  float upper;

  __device__ float operator[](uint32_t i) const {
    if (codes != nullptr) {
      const uint8_t code = codes[i / segment];
      if (IsSet(code)) return code == kUpper ? upper : 0.0f;
    }
    return values[i];
  }
};

// A row that is under one code as a whole: nothing is loaded.
struct ConstantRow {
  float value;
  __device__ float operator[](uint32_t) const { return value; }
};

// Whether a row under `code` as a whole comes out as it says, proven; its codes and, without a
// recorder, its values are then written.
__device__ inline bool WriteDecided(const BoundedMatmulArgs& args, int64_t row, uint8_t code,
                                    int64_t first, int64_t last) {
  if (code == kMixed || !(code == kZero ? args.zero_stays : args.keeps_upper)) return false;
  const int64_t begin = first / args.segment, end = (last + args.segment - 1) / args.segment;
  for (int64_t s = begin + threadIdx.x; s < end; s += blockDim.x) {
    args.out_codes[row * args.segments + s] = args.record ? code : static_cast<uint8_t>(kMixed);
  }
  for (int64_t n = first + threadIdx.x; !args.record && n < last; n += blockDim.x) {
    args.out[row * args.n_out + n] = code == kUpper ? args.upper : 0.0f;
  }
  return true;
}

template <typename Index, typename Row>
__device__ float OutputOf(const LayerView<Index>& view, const Row& x, uint32_t o, float upper) {
  float sum = 0.0f;
  const uint32_t end = view.End(o);
  for (uint32_t e = view.Begin(o); e < end; e += 4) {
    const Quad quad = view.Load(e);
#pragma unroll
    for (int k = 0; k < 4; ++k) sum = fmaf(quad.weight[k], x[quad.index[k]], sum);
  }
  return Bound(sum + __ldg(view.bias + o), upper);
}

template <typename Index, bool kShared>
__global__ void __launch_bounds__(kRowThreads)
    BoundedRow(const __grid_constant__ BoundedMatmulArgs args, uint32_t slabs, int64_t slab) {
  extern __shared__ float4 memory[];
  const int64_t row = blockIdx.x / slabs, first = blockIdx.x % slabs * slab;
  const int64_t last = min(first + slab, args.n_out);
  const uint8_t whole = BlockRowCode(args.codes + row * args.segments_in, args.segments_in);
  if (WriteDecided(args, row, whole, first, last)) return;
  float* const copy = reinterpret_cast<float*>(memory);
  InputRow x{args.values + row * args.n_in, args.codes + row * args.segments_in,
             static_cast<uint32_t>(args.segment_in), args.upper_in};
  if (args.segments_in == 0) x.codes = nullptr;
  if constexpr (kShared) {
    for (uint32_t i = threadIdx.x; whole == kMixed && i < args.n_in; i += kRowThreads)
      copy[i] = x[i];
    x.values = copy;
    x.codes = nullptr;
  }
  SegmentWriter writer(reinterpret_cast<uint8_t*>(copy + (kShared ? args.n_in : 0)),
                       args.out + row * args.n_out, first, last, args.segment, args.upper);
  writer.Clear(threadIdx.x, kRowThreads);
  __syncthreads();
  const LayerView<Index> view = ViewOfLayer<Index>(args);
  for (int64_t n0 = first; n0 < last; n0 += kRowThreads) {
    const int64_t n = n0 + threadIdx.x;
    if (n - threadIdx.x % 32 >= last) break;
    const bool valid = n < last;
    const uint32_t o = StoredRow(args, n, valid);
    float y = 0.0f;
    if (valid && whole == kMixed) y = OutputOf(view, x, o, args.upper);
    if (valid && whole != kMixed) {
      y = OutputOf(view, ConstantRow{whole == kUpper ? args.upper_in : 0.0f}, o, args.upper);
    }
    if (args.record) {
      writer.Put(static_cast<uint32_t>(n - first) / kRun, y, valid);
    } else if (valid) {
      args.out[row * args.n_out + n] = y;
    }
  }
  __syncthreads();
  uint8_t* const codes = args.out_codes + row * args.segments;
  if (args.record) return writer.Finish(codes, threadIdx.x / 32, kRowThreads / 32);
  for (int64_t s = first / args.segment + threadIdx.x; s * args.segment < last; s += kRowThreads) {
    codes[s] = kMixed;
  }
}

}  // namespace jaxsparse
