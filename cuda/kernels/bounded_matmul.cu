// Launches of one saturated layer, a dataflow each.
#include "cuda/kernels/bounded_matmul.h"

#include <algorithm>
#include <cstring>

#include "cuda/kernels/bounded_column.cuh"
#include "cuda/kernels/bounded_record.h"
#include "cuda/kernels/bounded_row.cuh"
#include "cuda/kernels/bounded_staged.cuh"

namespace jaxsparse {
namespace {

constexpr int64_t kSlab = 1024;
constexpr int64_t kMostShared = 96 << 10;  // two blocks an SM on every architecture built for
// Values of images in shared memory: at most 140 KB, beside 20 KB: a block an SM, of sm_80 too.
constexpr int64_t kMostStaged = 140 << 10, kBesideStaged = 20 << 10;
constexpr int64_t kFewBlocks = 132;  // fewer blocks than that are better cut smaller

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Outputs of a slab: a multiple of the segment, so that a block decides its segments alone.
int64_t SlabOf(const BoundedMatmulArgs& args, bool whole_row) {
  if (whole_row || args.n_out <= kSlab) return args.n_out;
  if (!args.record) return kSlab;
  return std::min(CeilDiv(kSlab, args.segment) * args.segment, args.n_out);
}

template <typename Index>
cudaError_t LaunchRow(const BoundedMatmulArgs& args, bool whole_row, cudaStream_t stream) {
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

// Blocks of some runs of outputs, as many as the device has multiprocessors, about.
template <int kImages, typename Index>
cudaError_t LaunchFew(const BoundedMatmulArgs& args, cudaStream_t stream) {
  const int64_t groups = CeilDiv(args.batch, kImages), runs = CeilDiv(args.n_out, kRunOutputs);
  const int64_t many = CeilDiv(groups * runs, kFewBlocks) * kRunOutputs;
  const int64_t chunks = CeilDiv(args.n_out, many), shared = args.n_in * kImages * 4;
  BoundedFew<kImages, Index><<<groups * chunks, kFewThreads, shared, stream>>>(args, chunks, many);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  return args.record ? Record(args, stream) : cudaSuccess;
}

// What a block of this device may stage: sm_86 has 99 KB in all.
cudaError_t FindStaged(int64_t* bytes) {
  int device = 0, most = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  *bytes = std::min(kMostStaged, most - kBesideStaged);
  return error;
}

template <typename Index>
cudaError_t LaunchColumn(const BoundedMatmulArgs& args, cudaStream_t stream) {
  const int64_t slab = SlabOf(args, false), slabs = CeilDiv(args.n_out, slab);
  const int64_t blocks = (CeilDiv(args.batch, kColumnImages) + 1) * slabs;
  const int64_t shared = kColumnImages * SegmentWriter::Bytes(slab, CeilDiv(slab, args.segment));
  if (blocks > INT32_MAX || shared > kMostShared) return cudaErrorInvalidConfiguration;
  const int64_t staged = args.n_in * kColumnImages * 4;
  int64_t most = 0;
  if (const cudaError_t error = FindStaged(&most); error != cudaSuccess) return error;
  const bool fits = staged + shared <= most;
  if (fits && blocks < kFewBlocks) {
    return args.batch == 1 ? LaunchFew<1, Index>(args, stream)
                           : LaunchFew<kColumnImages, Index>(args, stream);
  }
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

template <typename Index>
cudaError_t Launch(BoundedDataflow dataflow, const BoundedMatmulArgs& args, cudaStream_t stream) {
  if (dataflow == BoundedDataflow::kColumn) return LaunchColumn<Index>(args, stream);
  return LaunchRow<Index>(args, dataflow == BoundedDataflow::kRow, stream);
}

template <typename Index>
cudaError_t Prepare() {
  int64_t staged = 0;
  if (const cudaError_t error = FindStaged(&staged); error != cudaSuccess) return error;
  const struct {
    const void* kernel;
    int64_t shared;
  } all[] = {{reinterpret_cast<const void*>(BoundedRow<Index, true>), kMostShared},
             {reinterpret_cast<const void*>(BoundedRow<Index, false>), kMostShared},
             {reinterpret_cast<const void*>(BoundedColumn<Index, true>), staged},
             {reinterpret_cast<const void*>(BoundedColumn<Index, false>), kMostShared},
             {reinterpret_cast<const void*>(BoundedFew<1, Index>), staged},
             {reinterpret_cast<const void*>(BoundedFew<kColumnImages, Index>), staged}};
  for (const auto& [kernel, shared] : all) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
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
