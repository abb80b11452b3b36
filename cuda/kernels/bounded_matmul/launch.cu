// Launches of one saturated layer, a dataflow each.
#include "cuda/kernels/bounded_matmul/launch.h"

#include <algorithm>
#include <cstring>

#include "cuda/core/device.h"
#include "cuda/kernels/bounded_matmul/column.cuh"
#include "cuda/kernels/bounded_matmul/few.cuh"
#include "cuda/kernels/bounded_matmul/row.cuh"
#include "cuda/kernels/bounded_matmul/staged.cuh"
#include "cuda/recorder/record.h"

namespace jaxsparse {
namespace {

constexpr int64_t kSlab = 1024;
constexpr int64_t kMostShared = 96 << 10;  // two blocks an SM on every architecture built for
// Values of images in shared memory: at most 140 KB, a block an SM of sm_80 too, beside what a
// block has otherwise and what the device keeps.
constexpr int64_t kMostStaged = 140 << 10;
constexpr int64_t kBesideStaged = kColumnWarps * int64_t{sizeof(RunTile)} + 64 + 1024;
// Entries for each input, below which a block a row is faster than staging eight of them.
constexpr int64_t kRowEntries = 12;
constexpr int64_t kFewBlocks = kHopperMultiProcessors;
constexpr int64_t kFewCluster = 8, kLeastOutputs = 16;
constexpr int64_t kLongRow = 64;   // entries that a cluster is too small for
constexpr int64_t kManyFew = 128;  // images from which on blocks are many without being small

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Outputs of a slab: a multiple of the segment, so that a block decides its segments alone.
int64_t SlabOf(const BoundedMatmulArgs& args, bool whole_row) {
  if (whole_row || args.n_out <= kSlab) return args.n_out;
  if (!args.record) return kSlab;
  return std::min(CeilDiv(kSlab, args.segment) * args.segment, args.n_out);
}

// What eight images of a slab note in shared memory.
int64_t ColumnNotes(const BoundedMatmulArgs& args) {
  const int64_t slab = SlabOf(args, false);
  return kColumnImages * SegmentWriter::Bytes(slab, CeilDiv(slab, args.segment));
}

// A row whose notes do not fit (more than 48,000 segments) goes by slabs.
template <typename Index>
cudaError_t LaunchRow(const BoundedMatmulArgs& args, bool whole_row, cudaStream_t stream) {
  whole_row &= SegmentWriter::Bytes(args.n_out, args.segments) <= kMostShared;
  const int64_t slab = SlabOf(args, whole_row), slabs = CeilDiv(args.n_out, slab);
  const int64_t blocks = args.batch * slabs;
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  const int64_t bytes = SegmentWriter::Bytes(slab, CeilDiv(slab, args.segment));
  const int64_t shared = args.n_in * 4 + bytes;
  if (shared <= kMostShared) {
    BoundedRow<Index, true><<<blocks, kRowThreads, shared, stream>>>(args, slabs, slab);
  } else {
    if (bytes > kMostShared) return cudaErrorInvalidConfiguration;
    BoundedRow<Index, false><<<blocks, kRowThreads, bytes, stream>>>(args, slabs, slab);
  }
  return cudaGetLastError();
}

// The codes of what a launch before has written.
cudaError_t Record(const BoundedMatmulArgs& args, cudaStream_t stream) {
  BoundedRecordArgs record = {};
  record.rows = args.batch;
  record.n = args.n_out;
  record.segment = args.segment;
  record.segments = args.segments;
  record.values = args.out;
  record.bytes = sizeof(float);
  memcpy(&record.upper, &args.upper, sizeof(float));
  record.codes = args.out_codes;
  return LaunchBoundedRecord(record, stream);
}

using FewKernel = void (*)(BoundedMatmulArgs, FewShape);

// One image a block or two, four lanes to a row or all of them, blocks alone or in clusters.
enum FewWay : int { kOne, kOneCluster, kOneLong, kTwo, kTwoCluster, kFewWays };

template <typename Index>
constexpr FewKernel kFewKernels[kFewWays] = {
    BoundedFew<1, 4, false, Index>, BoundedFew<1, 4, true, Index>, BoundedFew<1, 32, false, Index>,
    BoundedFew<2, 4, false, Index>, BoundedFew<2, 4, true, Index>};

// How few images are dealt out, to about so many blocks.
struct FewPlan {
  FewWay way;
  int64_t blocks;
  int threads;

  bool Clusters() const { return way == kOneCluster || way == kTwoCluster; }
  int64_t Images() const { return way == kTwo || way == kTwoCluster ? 2 : 1; }
};

// As measured on an H200, 1 to 1000 images of 500 to 4096 values. A second launch for the codes
// costs 1.2 us; clusters have no more than eight blocks a segment, which is too few for long rows
// of narrow layers, but stage their values less often.
FewPlan PlanFew(const BoundedMatmulArgs& args, bool clusters) {
  const bool together = args.record && clusters, one = args.batch == 1;
  if (args.entries <= kLongRow * args.distinct) {
    return {together ? kOneCluster : kOne, one ? kFewBlocks : kFewBlocks / 2, kFewThreads};
  }
  if (one) return {kOneLong, kFewBlocks, kFewThreads};
  if (args.batch <= 32) return {kOne, 4 * kFewBlocks, kFewThreads / 2};
  if (args.batch >= kManyFew || args.n_out > 2 * kSlab) {
    if (together) return {kTwoCluster, kFewBlocks, kFewThreads};
    if (!args.record) return {kTwo, 2 * kFewBlocks, kFewThreads};  // blocks as large as there
  }
  return {kTwo, 4 * kFewBlocks, kFewThreads / 2};
}

FewShape ShapeOfFew(const BoundedMatmulArgs& args, const FewPlan& plan, int64_t groups) {
  int64_t span = args.n_out;
  if (plan.Clusters()) {
    span = std::min(std::max(kSlab / args.segment, int64_t{1}) * args.segment, span);
  }
  const int64_t spans = CeilDiv(args.n_out, span), want = CeilDiv(plan.blocks, groups * spans);
  const int64_t chunks =
      std::clamp(want, int64_t{1}, plan.Clusters() ? kFewCluster : CeilDiv(span, kLeastOutputs));
  const int64_t many = CeilDiv(CeilDiv(span, chunks), 4) * 4;
  FewShape shape = {};
  shape.chunks = static_cast<uint32_t>(CeilDiv(span, many));
  shape.many = static_cast<uint32_t>(many);
  shape.spans = static_cast<uint32_t>(spans);
  shape.span = static_cast<uint32_t>(span);
  return shape;
}

template <typename Index>
cudaError_t LaunchFew(const BoundedMatmulArgs& args, cudaStream_t stream) {
  int device = 0, clusters = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, device);
  }
  if (error != cudaSuccess) return error;
  const FewPlan plan = PlanFew(args, clusters != 0);
  const int64_t images = plan.Images(), groups = CeilDiv(args.batch, images);
  const FewShape shape = ShapeOfFew(args, plan, groups);
  const int64_t notes = plan.Clusters() ? 2 * images * CeilDiv(shape.span, args.segment) : 0;
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {shape.chunks, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(groups * shape.spans * shape.chunks));
  config.blockDim = dim3(static_cast<unsigned>(plan.threads));
  config.dynamicSmemBytes = static_cast<size_t>(images * args.n_in * 4 + notes);
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = plan.Clusters() ? 1 : 0;
  error = cudaLaunchKernelEx(&config, kFewKernels<Index>[plan.way], args, shape);
  return error != cudaSuccess || plan.Clusters() || !args.record ? error : Record(args, stream);
}

// What a block of this device may stage, so that `blocks` of them fit a multiprocessor: sm_86 has
// 99 KB in all.
cudaError_t FindStaged(int64_t blocks, int64_t* bytes) {
  int device = 0, block = 0, all = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
  }
  *bytes = std::min({kMostStaged, block - kBesideStaged, all / blocks - kBesideStaged});
  return error;
}

// Segments that are too long for the notes of eight images (390,000 outputs) go by slabs.
template <typename Index>
cudaError_t LaunchColumn(const BoundedMatmulArgs& args, cudaStream_t stream) {
  const int64_t slab = SlabOf(args, false), slabs = CeilDiv(args.n_out, slab);
  const int64_t blocks = (CeilDiv(args.batch, kColumnImages) + 1) * slabs;
  const int64_t shared = ColumnNotes(args);
  if (shared > kMostShared) return LaunchRow<Index>(args, false, stream);
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  const int64_t staged = args.n_in * kColumnImages * 4;
  int64_t most = 0;
  if (const cudaError_t error = FindStaged(2, &most); error != cudaSuccess) return error;
  const bool fits = staged + shared <= most;
  ClearCounts<<<1, 1, 0, stream>>>(args.scratch);
  ListUndecided<<<CeilDiv(args.batch * 32, kColumnThreads), kColumnThreads, 0, stream>>>(args);
  if (fits) {
    BoundedColumn<Index, true>
        <<<blocks, kColumnThreads, staged + shared, stream>>>(args, slabs, slab);
  } else {
    BoundedColumn<Index, false><<<blocks, kColumnThreads, shared, stream>>>(args, slabs, slab);
  }
  return cudaGetLastError();
}

// Whether eight images a block would be fewer blocks than half of the multiprocessors.
bool IsFew(const BoundedMatmulArgs& args) {
  const int64_t slabs = CeilDiv(args.n_out, SlabOf(args, false));
  return (CeilDiv(args.batch, kColumnImages) + 1) * slabs < kFewBlocks / 2;
}

template <typename Index>
cudaError_t LaunchImages(const BoundedMatmulArgs& args, cudaStream_t stream) {
  int64_t most = 0;
  if (const cudaError_t error = FindStaged(1, &most); error != cudaSuccess) return error;
  const int64_t two = 2 * (args.n_in * 4 + 2 * std::max(kSlab, args.segments));
  return IsFew(args) && two <= most ? LaunchFew<Index>(args, stream)
                                    : LaunchColumn<Index>(args, stream);
}

// Whether there are so few entries that staging eight images does not pay, and a row fits.
bool PrefersRow(const BoundedMatmulArgs& args) {
  const int64_t bytes = args.n_in * 4 + SegmentWriter::Bytes(args.n_out, args.segments);
  const int64_t mean = CeilDiv(args.entries, std::max(args.distinct, int64_t{1}));
  return bytes <= kMostShared && mean * args.n_out < kRowEntries * args.n_in;
}

template <typename Index>
cudaError_t Launch(BoundedDataflow dataflow, const BoundedMatmulArgs& args, cudaStream_t stream) {
  switch (dataflow) {
    case BoundedDataflow::kColumn:
      return LaunchImages<Index>(args, stream);
    case BoundedDataflow::kChosen:
      return PrefersRow(args) && (args.batch >= kManyFew || !IsFew(args))
                 ? LaunchRow<Index>(args, true, stream)
                 : LaunchImages<Index>(args, stream);
    default:
      return LaunchRow<Index>(args, dataflow == BoundedDataflow::kRow, stream);
  }
}

template <typename Index>
cudaError_t Prepare() {
  int64_t staged = 0;
  if (const cudaError_t error = FindStaged(1, &staged); error != cudaSuccess) return error;
  const struct {
    const void* kernel;
    int64_t shared;
  } all[] = {{reinterpret_cast<const void*>(BoundedRow<Index, true>), kMostShared},
             {reinterpret_cast<const void*>(BoundedRow<Index, false>), kMostShared},
             {reinterpret_cast<const void*>(BoundedColumn<Index, true>), staged},
             {reinterpret_cast<const void*>(BoundedColumn<Index, false>), kMostShared}};
  for (const auto& [kernel, shared] : all) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (error != cudaSuccess) return error;
  }
  for (const FewKernel kernel : kFewKernels<Index>) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(staged));
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t PrepareBoundedMatmul() {
  const cudaError_t error = Prepare<uint16_t>();
  return error != cudaSuccess ? error : Prepare<int32_t>();
}

cudaError_t LaunchBoundedMatmul(BoundedDataflow dataflow, const BoundedMatmulArgs& args,
                                cudaStream_t stream) {
  return args.wide ? Launch<int32_t>(dataflow, args, stream)
                   : Launch<uint16_t>(dataflow, args, stream);
}

}  // namespace jaxsparse
