// A layer of few images, spread over the device: a block is some dozens of outputs of one image, or
// of two, whose values it stages in shared memory.
//
// Floor: a launch and two ways to the second-level cache one after the other (a row's bounds, its
// entries) beside one to memory for the values. A warp's first entries are on their way while the
// values are staged, and later rows' while it adds up. Lanes of one image take a row together: many
// where rows are long, else a few, and the warp has several rows at a time. The blocks of some
// whole segments are a cluster: each notes what its outputs rule out and tells the first, which
// settles the codes; so no launch follows for them. Before Hopper, and where a cluster would be too
// few blocks for the work, blocks are alone and a second launch records. An empty kernel takes 1.3
// us between two others on an H200, and each way 0.6 to 0.8: predicted 3.5 us, measured 4.8 for one
// image of 1000 x 500 at 1 % (a cluster's two barriers are the rest), 6.2 for 64.
#pragma once

#include <cooperative_groups.h>

#include "cuda/kernels/bounded_matmul/staged.cuh"

namespace jaxsparse {

constexpr int kFewThreads = 512;  // at most

// How outputs are dealt out: a block has `many`, a cluster (or a block alone) the chunks of `span`,
// which is whole segments.
struct FewShape {
  uint32_t chunks, many, spans, span;
};

// The barrier of a block's cluster, and what its first block has in shared memory.
struct FewCluster {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  __device__ static uint8_t* OfFirst(uint8_t* mine) {
    return cooperative_groups::this_cluster().map_shared_rank(mine, 0);
  }
  __device__ static void Arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
  __device__ static void Wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
#else
  __device__ static uint8_t* OfFirst(uint8_t* mine) { return mine; }
  __device__ static void Arrive() {}
  __device__ static void Wait() { __syncthreads(); }
#endif
};

// A lane's part of a row: image lane % kImages, and of the lanes of that image kShare to a row.
template <int kImages, int kShare, typename Index>
class SharedRow {
 public:
  static constexpr int kRows = 32 / kImages / kShare;  // of a warp, at a time

  // Which of the warp's rows is this lane's.
  __device__ static uint32_t Mine() { return threadIdx.x % 32 / (kImages * kShare); }

  __device__ SharedRow(const BoundedMatmulArgs& args, const LayerView<Index>& view, int64_t output,
                       bool valid) {
    if (!valid) return;
    const uint32_t row = StoredRow(args, output, true);
    const uint32_t share = threadIdx.x % 32 / kImages % kShare;
    entry_ = view.Begin(row) + 4 * share;
    end_ = view.End(row);
    bias_ = __ldg(view.bias + row);
    if (entry_ < end_) ahead_ = view.Load(entry_);
  }

  // x as StageImages leaves it; the sum and the bias, in all of the row's lanes.
  __device__ float Sum(const LayerView<Index>& view, const float* x) {
    float sum = 0.0f;
    const float* const mine = x + threadIdx.x % kImages;
#pragma unroll 2
    while (entry_ < end_) {
      const Quad quad = ahead_;
      entry_ += 4 * kShare;
      if (entry_ < end_) ahead_ = view.Load(entry_);
#pragma unroll
      for (int k = 0; k < 4; ++k) sum = fmaf(quad.weight[k], mine[quad.index[k] * kImages], sum);
    }
#pragma unroll
    for (int step = kImages; step < kImages * kShare; step *= 2) {
      sum += __shfl_xor_sync(~0u, sum, step);
    }
    return sum + bias_;
  }

 private:
  uint32_t entry_ = 0, end_ = 0;
  float bias_ = 0.0f;
  Quad ahead_ = {};
};

// What the outputs of a span rule out, image by image and segment by segment: a block's own notes,
// and the first block's, to which the others add theirs.
template <int kImages>
class FewNotes {
 public:
  // Bytes for `segments` segments of a span.
  static __host__ __device__ int64_t Bytes(int64_t segments) { return 2 * kImages * segments; }

  __device__ FewNotes(uint8_t* notes, uint32_t segments) : notes_(notes), segments_(segments) {}

  // Before anything else: no block adds to the first block's notes before it has cleared them.
  __device__ void Clear() const {
    for (uint32_t i = threadIdx.x; i < Bytes(segments_); i += blockDim.x) notes_[i] = 0;
    FewCluster::Arrive();
  }
  __device__ void See(uint32_t image, uint32_t segment, float y, float upper) const {
    uint8_t* const note = notes_ + (image * segments_ + segment) * 2;
    if (y != 0.0f) note[0] = 1;
    if (y != upper) note[1] = 1;
  }
  // Tells the first block; returns whether this is it, with everything told.
  __device__ bool Tell(uint32_t rank) const {
    __syncthreads();
    FewCluster::Wait();
    uint8_t* const first = FewCluster::OfFirst(notes_);
    for (uint32_t i = threadIdx.x; rank != 0 && i < Bytes(segments_); i += blockDim.x) {
      if (notes_[i] != 0) first[i] = 1;
    }
    FewCluster::Arrive();
    if (rank == 0) FewCluster::Wait();
    return rank == 0;
  }
  // The codes of the span of `images` images; `codes` is that of its first segment.
  __device__ void Settle(uint8_t* codes, int64_t stride, uint32_t images) const {
    for (uint32_t i = threadIdx.x; i < images * segments_; i += blockDim.x) {
      const uint32_t image = i / segments_, segment = i % segments_;
      codes[image * stride + segment] = !notes_[2 * i]       ? kZero
                                        : !notes_[2 * i + 1] ? kUpper
                                                             : kMixed;
    }
  }

 private:
  uint8_t* notes_;
  uint32_t segments_;
};

// Block: kImages images x `many` outputs. Every value is written; codes are all 0 where none are
// recorded, and left to another launch where blocks are alone.
template <int kImages, int kShare, bool kCluster, typename Index>
__global__ void __launch_bounds__(kFewThreads)
    BoundedFew(const __grid_constant__ BoundedMatmulArgs args,
               const __grid_constant__ FewShape shape) {
  using Row = SharedRow<kImages, kShare, Index>;
  extern __shared__ float4 memory[];
  __shared__ int64_t rows[kImages];
  const uint32_t chunk = blockIdx.x % shape.chunks, item = blockIdx.x / shape.chunks;
  const int64_t image = static_cast<int64_t>(item / shape.spans) * kImages;
  const int64_t begin = static_cast<int64_t>(item % shape.spans) * shape.span;
  const int64_t end = min(begin + shape.span, args.n_out);
  const int64_t first = begin + static_cast<int64_t>(chunk) * shape.many;
  const int64_t last = min(first + shape.many, end);
  const uint32_t lane_image = threadIdx.x % kImages;
  const LayerView<Index> view = ViewOfLayer<Index>(args);
  int64_t n = first + threadIdx.x / 32 * Row::kRows + Row::Mine();
  Row row(args, view, n, n < last);
  float* const x = reinterpret_cast<float*>(memory);
  const uint32_t segments = static_cast<uint32_t>((end - begin + args.segment - 1) / args.segment);
  const FewNotes<kImages> notes(reinterpret_cast<uint8_t*>(x + args.n_in * kImages), segments);
  if (threadIdx.x < kImages) rows[threadIdx.x] = min(image + threadIdx.x, args.batch - 1);
  if (kCluster) notes.Clear();
  __syncthreads();
  StageImages<kImages>(args, rows, x);
  const bool mine = image + lane_image < args.batch && threadIdx.x % 32 / kImages % kShare == 0;
  const int64_t step = blockDim.x / 32 * Row::kRows;
  for (int64_t run = first; run < last; run += step) {
    Row now = row;
    const int64_t at = n;
    n += step;
    row = Row(args, view, n, n < last);
    const float y = Bound(now.Sum(view, x), args.upper);
    if (at >= last || !mine) continue;
    args.out[(image + lane_image) * args.n_out + at] = y;
    if (kCluster) notes.See(lane_image, (at - begin) / args.segment, y, args.upper);
  }
  if constexpr (kCluster) {
    if (!notes.Tell(chunk)) return;
    const int64_t images = min(args.batch - image, int64_t{kImages});
    notes.Settle(args.out_codes + image * args.segments + begin / args.segment, args.segments,
                 static_cast<uint32_t>(images));
  } else if (!args.record && threadIdx.x < kImages && image + threadIdx.x < args.batch) {
    uint8_t* const codes = args.out_codes + (image + threadIdx.x) * args.segments;
    for (int64_t s = (first + args.segment - 1) / args.segment; s * args.segment < last; ++s) {
      codes[s] = kMixed;
    }
  }
}

}  // namespace jaxsparse
