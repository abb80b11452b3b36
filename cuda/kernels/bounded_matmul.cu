// Launches of one saturated layer, a dataflow each.
#include "cuda/kernels/bounded_matmul.h"

#include <algorithm>
#include <initializer_list>

#include "cuda/kernels/bounded_column.cuh"
#include "cuda/kernels/bounded_row.cuh"

namespace jaxsparse {
namespace {

constexpr int64_t kSlab = 1024;
constexpr int64_t kMostShared = 96 << 10;  // two blocks an SM on every architecture built for

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

template <typename Index>
cudaError_t LaunchColumn(const BoundedMatmulArgs& args, cudaStream_t stream) {
  const int64_t slab = SlabOf(args, false), slabs = CeilDiv(args.n_out, slab);
  const int64_t blocks = (CeilDiv(args.batch, kColumnImages) + 1) * slabs;
  const int64_t shared = kColumnImages * SegmentWriter::Bytes(slab, CeilDiv(slab, args.segment));
  if (blocks > INT32_MAX || shared > kMostShared) return cudaErrorInvalidConfiguration;
  ClearCounts<<<1, 1, 0, stream>>>(args.scratch);
  ListUndecided<<<CeilDiv(args.batch * 32, kColumnThreads), kColumnThreads, 0, stream>>>(args);
  BoundedColumn<Index><<<blocks, kColumnThreads, shared, stream>>>(args, slabs, slab);
  return cudaGetLastError();
}

template <typename Index>
cudaError_t Launch(BoundedDataflow dataflow, const BoundedMatmulArgs& args, cudaStream_t stream) {
  if (dataflow == BoundedDataflow::kColumn) return LaunchColumn<Index>(args, stream);
  return LaunchRow<Index>(args, dataflow == BoundedDataflow::kRow, stream);
}

}  // namespace

cudaError_t PrepareBoundedMatmul() {
  for (const void* kernel : {reinterpret_cast<const void*>(BoundedRow<uint16_t, true>),
                             reinterpret_cast<const void*>(BoundedRow<int32_t, true>),
                             reinterpret_cast<const void*>(BoundedRow<uint16_t, false>),
                             reinterpret_cast<const void*>(BoundedRow<int32_t, false>),
                             reinterpret_cast<const void*>(BoundedColumn<uint16_t>),
                             reinterpret_cast<const void*>(BoundedColumn<int32_t>)}) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostShared);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchBoundedMatmul(BoundedDataflow dataflow, const BoundedMatmulArgs& args,
                                cudaStream_t stream) {
  return args.wide ? Launch<int32_t>(dataflow, args, stream)
                   : Launch<uint16_t>(dataflow, args, stream);
}

}  // namespace jaxsparse
