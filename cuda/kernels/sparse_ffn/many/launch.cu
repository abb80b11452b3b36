#include "cuda/kernels/sparse_ffn/many/launch.h"

#include <algorithm>

#include "cuda/core/device.h"
#include "cuda/kernels/sparse_ffn/many/lists.cuh"
#include "cuda/kernels/sparse_ffn/many/rows.cuh"
#include "cuda/kernels/sparse_ffn/many/sampled.cuh"

namespace jaxsparse {
namespace {

constexpr int kFewStages = 2, kManyStages = 3;

struct ListedKernels {
  void (*sampled)(ListedArgs, SamplePlan);
  void (*rows)(ListedArgs, const uint2*, RowPlan);
};

template <class T>
ListedKernels WithStages(int stages) {
  if (stages == kManyStages) return {SampledKernel<T, kManyStages>, RowKernel<T, kManyStages>};
  return {SampledKernel<T, kFewStages>, RowKernel<T, kFewStages>};
}

ListedKernels KernelsFor(DType type, int stages) {
  return type == DType::kBF16 ? WithStages<__nv_bfloat16>(stages) : WithStages<__half>(stages);
}

// As many as the current device has room for; 0 if that is too few.
cudaError_t Stages(int* stages) {
  int device = 0, bytes = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  status = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  *stages = bytes >= kManyStages * kStageBytes  ? kManyStages
            : bytes >= kFewStages * kStageBytes ? kFewStages
                                                : 0;
  return status;
}

// Groups of a CTA, so that the last wave of CTAs is full: a tile costs its groups, and the copies,
// which take as long as eight.
int SampleTile(int64_t groups, int64_t chunks, int64_t processors) {
  constexpr int64_t kCopies = 8, kTried = 64;
  const int64_t least = CeilDiv(groups, kSampleTile);
  int64_t best = 0, tile = kSampleTile;
  for (int64_t tiles = least; tiles <= std::min(groups, least + kTried); ++tiles) {
    const int64_t each = CeilDiv(groups, tiles);
    const int64_t cost = CeilDiv(tiles * chunks, processors) * (each + kCopies);
    if (best == 0 || cost < best) {
      best = cost;
      tile = each;
    }
  }
  return static_cast<int>(tile);
}

}  // namespace

cudaError_t LaunchLists(const ListArgs& args, cudaStream_t stream) {
  const int chunks = static_cast<int>(ListChunks(args.depth));
  const int lists = static_cast<int>(ListGroups(args.rows)) * chunks;
  const auto kernel = args.type == DType::kBF16 ? ListKernel<__nv_bfloat16> : ListKernel<__half>;
  const unsigned ctas = static_cast<unsigned>(CeilDiv(lists, kListWarps));
  kernel<<<ctas, kListWarps * 32, 0, stream>>>(args, chunks, lists);
  return cudaGetLastError();
}

bool ListedFits() {
  int stages = 0;
  return Stages(&stages) == cudaSuccess && stages != 0;
}

cudaError_t LaunchListed(const ListedArgs& args, cudaStream_t stream) {
  int stages = 0;
  cudaError_t status = Stages(&stages);
  if (status == cudaSuccess && stages == 0) status = cudaErrorNotSupported;
  if (status != cudaSuccess) return status;
  const ListedKernels kernels = KernelsFor(args.type, stages);
  const int shared_bytes = stages * kStageBytes;
  const int64_t groups = ListGroups(args.tokens), chunks = ListChunks(args.hidden);
  const int64_t processors = MultiProcessors();
  const void* values = args.values;
  if (args.x != nullptr) {
    const SamplePlan plan = {static_cast<int>(groups), static_cast<int>(chunks),
                             SampleTile(groups, chunks, processors)};
    const unsigned ctas = static_cast<unsigned>(CeilDiv(groups, plan.tile) * chunks);
    kernels.sampled<<<ctas, kSampleThreads, shared_bytes, stream>>>(args, plan);
    status = cudaGetLastError();
    if (status != cudaSuccess) return status;
    values = args.products;
  }
  if (args.outputs == 0) return cudaSuccess;
  const int64_t panels = CeilDiv(args.outputs, kRowColumns);
  const int64_t tiles = CeilDiv(groups, kRowTile) * panels;
  const RowPlan plan = {static_cast<int>(groups), static_cast<int>(chunks),
                        static_cast<int>(panels), static_cast<int>(tiles)};
  const unsigned ctas = static_cast<unsigned>(std::min(tiles, processors));
  kernels.rows<<<ctas, kRowThreads, shared_bytes, stream>>>(args, static_cast<const uint2*>(values),
                                                            plan);
  return cudaGetLastError();
}

cudaError_t PrepareLists() {
  const cudaError_t status = PrepareKernel(ListKernel<__nv_bfloat16>, 0);
  return status == cudaSuccess ? PrepareKernel(ListKernel<__half>, 0) : status;
}

cudaError_t PrepareListed() {
  int stages = 0;
  cudaError_t status = Stages(&stages);
  if (stages == 0) return status;
  for (const DType type : {DType::kBF16, DType::kF16}) {
    const ListedKernels kernels = KernelsFor(type, stages);
    if (status == cudaSuccess) status = PrepareKernel(kernels.sampled, stages * kStageBytes);
    if (status == cudaSuccess) status = PrepareKernel(kernels.rows, stages * kStageBytes);
  }
  return status;
}

}  // namespace jaxsparse
