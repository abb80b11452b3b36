// The column dataflow: blocks of eight images x a slab of neurons over the undecided rows only.
//
// Floor: undecided rows in and out once; an entry is loaded once for eight images, so 60,000 rows
// of 1024 neurons read 1.5 GB of entries a layer from L2, 0.2 ms, and eight gathers an entry, 2 G a
// layer, .3 ms where a row lies in the first-level cache. A first kernel lists the undecided rows,
// in any order, those with values apart from those under a code as a whole; the counts stay on the
// device. Measured a layer: 1.7 ms without recorder, 1.1 with it (mean over 40 layers of the
// challenge, no folding, no proofs). Where nothing saturates the recorder costs 2 % (32 entries an
// output; row 1.8 %, slab 1.0 %).
#pragma once

#include "cuda/kernels/bounded_matmul/row.cuh"
#include "cuda/kernels/bounded_matmul/staged.cuh"

namespace jaxsparse {

constexpr int kColumnThreads = 512, kColumnWarps = kColumnThreads / 32;

// What a block's images have in common: their values are in shared memory; or they are too many for
// that, and values only; or some segments are under codes (then every gather asks); or whole rows
// under a code (then nothing is gathered: an output has one value for zero rows, one for rows at
// the bound).
enum class ColumnMode { kStaged, kValues, kParts, kWhole };

// The list of undecided rows: args.scratch[0] with values from its front, [1] under a code as a
// whole from its back.
__global__ void ClearCounts(uint32_t* counts) { counts[0] = counts[1] = 0; }

// A warp a row: its codes and values where it is decided, otherwise a place in the list.
__global__ void __launch_bounds__(kColumnThreads)
    ListUndecided(const __grid_constant__ BoundedMatmulArgs args) {
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * kColumnThreads + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (row >= args.batch) return;
  const uint8_t* codes = args.codes + row * args.segments_in;
  const uint8_t code = args.segments_in == 0 ? static_cast<uint8_t>(kMixed) : codes[0];
  bool same = IsSet(code);
  for (int64_t s = lane; same && s < args.segments_in; s += 32) same = codes[s] == code;
  same = __all_sync(~0u, same);
  if (!same || !(code == kZero ? args.zero_stays : args.keeps_upper)) {
    if (lane != 0) return;
    const int64_t place =
        same ? args.batch - 1 - atomicAdd(args.scratch + 1, 1u) : atomicAdd(args.scratch, 1u);
    args.scratch[2 + place] = static_cast<uint32_t>(row);
    return;
  }
  for (int64_t s = lane; s < args.segments; s += 32) {
    args.out_codes[row * args.segments + s] = args.record ? code : static_cast<uint8_t>(kMixed);
  }
  for (int64_t n = lane; !args.record && n < args.n_out; n += 32) {
    args.out[row * args.n_out + n] = code == kUpper ? args.upper : 0.0f;
  }
}

template <ColumnMode kMode, typename Index>
__device__ void ColumnOutput(const BoundedMatmulArgs& args, const LayerView<Index>& view,
                             const int64_t* rows, uint32_t o, float (&y)[kColumnImages]) {
  const float* x[kColumnImages];
#pragma unroll
  for (int i = 0; i < kColumnImages; ++i) {
    x[i] = args.values + rows[i] * args.n_in;
    y[i] = 0.0f;
  }
  const uint32_t end = view.End(o);
  for (uint32_t e = view.Begin(o); e < end; e += 4) {
    const Quad quad = view.Load(e);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < kColumnImages; ++i) {
        const float v = kMode == ColumnMode::kParts ? PartOf(args, rows[i], quad.index[k])
                                                    : __ldg(x[i] + quad.index[k]);
        y[i] = fmaf(quad.weight[k], v, y[i]);
      }
    }
  }
  const float bias = __ldg(view.bias + o);
#pragma unroll
  for (int i = 0; i < kColumnImages; ++i) y[i] = Bound(y[i] + bias, args.upper);
}

// Rows under a code as a whole: the same sum for all that are at the bound.
template <typename Index>
__device__ void WholeOutput(const BoundedMatmulArgs& args, const LayerView<Index>& view,
                            const int64_t* rows, uint32_t o, float (&y)[kColumnImages]) {
  float full = 0.0f;
  const uint32_t end = view.End(o);
  for (uint32_t e = view.Begin(o); e < end; e += 4) {
    const Quad quad = view.Load(e);
#pragma unroll
    for (int k = 0; k < 4; ++k) full = fmaf(quad.weight[k], args.upper_in, full);
  }
  const float bias = __ldg(view.bias + o);
  full = Bound(full + bias, args.upper);
  const float zero = Bound(bias, args.upper);
#pragma unroll
  for (int i = 0; i < kColumnImages; ++i) {
    y[i] = args.codes[rows[i] * args.segments_in] == kUpper ? full : zero;
  }
}

// One slab of outputs of eight listed images.
template <ColumnMode kMode, typename Index>
__device__ void ColumnSlab(const BoundedMatmulArgs& args, const int64_t* rows, int count,
                           int64_t first, int64_t last, uint8_t* shared, const float* staged) {
  __shared__ RunTile tiles[kMode == ColumnMode::kStaged ? kColumnWarps : 1];
  const LayerView<Index> view = ViewOfLayer<Index>(args);
  const int64_t segments = (last - first + args.segment - 1) / args.segment;
  const int64_t bytes = SegmentWriter::Bytes(last - first, segments);
  const SegmentWriter front(shared, args.out, first, last, args.segment, args.upper);
  const auto writer = [&](int i) {
    return front.Of(i * bytes, args.out + rows[i] * args.n_out + first);
  };
  for (int i = 0; i < kColumnImages; ++i) writer(i).Clear(threadIdx.x, kColumnThreads);
  __syncthreads();
  for (int64_t n = first + threadIdx.x; n - threadIdx.x % 32 < last; n += kColumnThreads) {
    const bool valid = n < last;
    float y[kColumnImages];
    const uint32_t o = StoredRow(args, n, valid);
    if constexpr (kMode == ColumnMode::kStaged) {
      StagedOutputs(args, view, staged, n - threadIdx.x % 32, last, tiles[threadIdx.x / 32], y);
    } else if constexpr (kMode == ColumnMode::kWhole) {
      WholeOutput(args, view, rows, o, y);
    } else {
      ColumnOutput<kMode>(args, view, rows, o, y);
    }
#pragma unroll
    for (int i = 0; i < kColumnImages; ++i) {
      if (i >= count) break;
      if (args.record) {
        writer(i).Put(static_cast<uint32_t>(n - first) / kRun, y[i], valid);
      } else if (valid) {
        args.out[rows[i] * args.n_out + n] = y[i];
      }
    }
  }
  __syncthreads();
  for (int i = 0; i < count; ++i) {
    uint8_t* const codes = args.out_codes + rows[i] * args.segments;
    if (args.record) {
      writer(i).Finish(codes, (threadIdx.x / 32 + i) % kColumnWarps, kColumnWarps);
    } else {
      for (int64_t s = threadIdx.x; s < segments; s += kColumnThreads) {
        codes[first / args.segment + s] = kMixed;
      }
    }
  }
}

// kStaged: the values of eight images fit shared memory, in front of what the writers need.
template <typename Index, bool kStaged>
__global__ void __launch_bounds__(kColumnThreads)
    BoundedColumn(const __grid_constant__ BoundedMatmulArgs args, uint32_t slabs, int64_t slab) {
  extern __shared__ float4 memory[];
  __shared__ int64_t rows[kColumnImages];
  const int64_t fronts = (args.scratch[0] + kColumnImages - 1) / kColumnImages;
  const int64_t group = blockIdx.x / slabs;
  const bool front = group < fronts;
  const int64_t place = (front ? group : group - fronts) * kColumnImages;
  const int64_t left = static_cast<int64_t>(args.scratch[front ? 0 : 1]) - place;
  if (left <= 0) return;
  const int64_t first = blockIdx.x % slabs * slab, last = min(first + slab, args.n_out);
  const int count = static_cast<int>(min(left, static_cast<int64_t>(kColumnImages)));
  if (threadIdx.x < kColumnImages) {
    const int64_t at = place + min(static_cast<int>(threadIdx.x), count - 1);
    rows[threadIdx.x] = args.scratch[2 + (front ? at : args.batch - 1 - at)];
  }
  __syncthreads();
  float* const x = reinterpret_cast<float*>(memory);
  uint8_t* const shared = reinterpret_cast<uint8_t*>(x + (kStaged ? args.n_in * kColumnImages : 0));
  if (!front) {
    ColumnSlab<ColumnMode::kWhole, Index>(args, rows, count, first, last, shared, nullptr);
  } else if constexpr (kStaged) {
    StageImages<kColumnImages>(args, rows, x);
    ColumnSlab<ColumnMode::kStaged, Index>(args, rows, count, first, last, shared, x);
  } else if (AnyCode<kColumnImages>(args, rows)) {
    ColumnSlab<ColumnMode::kParts, Index>(args, rows, count, first, last, shared, nullptr);
  } else {
    ColumnSlab<ColumnMode::kValues, Index>(args, rows, count, first, last, shared, nullptr);
  }
}

}  // namespace jaxsparse
