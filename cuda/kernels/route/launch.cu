// Routing: one pass where the experts fit a pass's buckets, else a radix sort, a byte a pass.
#include "cuda/kernels/route/launch.h"

#include <algorithm>

#include "cuda/core/device.h"
#include "cuda/kernels/route/kernel.cuh"

namespace jaxsparse {
namespace {

using routing::Pass;

constexpr int kMostBuckets = 512;
constexpr int kMostLists = 65535;  // of one launch

// Dynamic shared memory of the kernels, in bytes.
constexpr int CountBytes(int buckets) { return routing::kWarps * buckets * 4; }
constexpr int PlaceBytes(int buckets) {
  return CountBytes(buckets) + buckets * static_cast<int>(4 + sizeof(routing::BucketCounts));
}

int64_t Blocks(int64_t assignments) {
  return std::max<int64_t>(1, (assignments + routing::kItems - 1) / routing::kItems);
}

// Counts of a bucket, one a block, in rows of whole 8 bytes.
int64_t Width(int64_t assignments) { return (Blocks(assignments) + 3) / 4 * 4; }

// In 32-bit words.
int64_t HistogramWords(int64_t lists, int64_t assignments, int64_t buckets) {
  return lists * buckets * Width(assignments) / 2;
}

int Buckets(int64_t experts) {
  return experts + 1 <= kMostBuckets ? static_cast<int>(experts + 1) : 256;
}

int Passes(int64_t experts) {
  if (experts + 1 <= kMostBuckets) return 1;
  int passes = 1;
  while (passes < 4 && experts >> (8 * passes) != 0) ++passes;
  return passes;
}

// Whether the device can start a kernel before the one in front of it is done.
bool CanOverlap() {
  int capability = 0;
  return ComputeCapability(&capability) == cudaSuccess && capability >= 90;
}

cudaError_t RunPass(const Pass& p, const RouteArgs& a, int64_t list, int64_t lists, int32_t* order,
                    bool last, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(Blocks(a.assignments)), static_cast<unsigned>(lists));
  auto* const histogram = reinterpret_cast<uint16_t*>(a.scratch);
  const int64_t width = Width(a.assignments);
  const int64_t items = list * a.assignments;
  Pass here = p;
  here.ids += items;
  if (here.previous != nullptr) here.previous += items;
  routing::CountKernel<<<grid, routing::kThreads, CountBytes(p.buckets), stream>>>(here, histogram,
                                                                                   width);
  const bool sizes = last && !p.digits;
  cudaLaunchAttribute overlap = OverlapAttribute();
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(routing::kThreads);
  config.dynamicSmemBytes = PlaceBytes(p.buckets);
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = CanOverlap() ? 1 : 0;
  const cudaError_t status = cudaLaunchKernelEx(
      &config, routing::PlaceKernel, here, static_cast<const uint16_t*>(histogram), width,
      order + items, last ? a.source + items : nullptr,
      sizes ? a.group_sizes + list * a.experts : nullptr, static_cast<int>(a.top_k));
  if (status != cudaSuccess) return status;
  return cudaGetLastError();
}

cudaError_t CountSizes(const Pass& p, const RouteArgs& a, int64_t list, int64_t lists,
                       cudaStream_t stream) {
  int32_t* sizes = a.group_sizes + list * a.experts;
  const auto grid = [](int64_t n) {
    return static_cast<unsigned>(std::min<int64_t>((n + 1023) / 1024 + 1, 1024));
  };
  routing::ClearSizesKernel<<<grid(lists * a.experts), routing::kThreads, 0, stream>>>(
      sizes, lists * a.experts);
  Pass here = p;
  here.ids += list * a.assignments;
  routing::CountSizesKernel<<<dim3(grid(a.assignments), static_cast<unsigned>(lists)),
                              routing::kThreads, 0, stream>>>(here, sizes);
  return cudaGetLastError();
}

}  // namespace

int64_t RouteScratchWords(int64_t lists, int64_t assignments, int64_t experts) {
  const int64_t together = std::min<int64_t>(lists, kMostLists);
  const int64_t counts = HistogramWords(together, assignments, Buckets(experts));
  return counts + (Passes(experts) > 1 ? lists * assignments : 0) + 1;
}

cudaError_t LaunchRoute(const RouteArgs& a, cudaStream_t stream) {
  if (a.scratch_words < RouteScratchWords(a.lists, a.assignments, a.experts)) {
    return cudaErrorInvalidValue;
  }
  const int passes = Passes(a.experts);
  const int64_t together = std::min<int64_t>(a.lists, kMostLists);
  int32_t* const spare = a.scratch + HistogramWords(together, a.assignments, Buckets(a.experts));
  Pass p = {};
  p.ids = a.ids;
  p.count = a.assignments;
  p.experts = static_cast<int>(a.experts);
  p.buckets = Buckets(a.experts);
  p.digits = passes > 1;
  for (int64_t list = 0; list < a.lists; list += kMostLists) {
    const int64_t lists = std::min<int64_t>(kMostLists, a.lists - list);
    cudaError_t status = cudaSuccess;
    for (int pass = 0; pass < passes && status == cudaSuccess; ++pass) {
      int32_t* target = (passes - 1 - pass) % 2 == 0 ? a.order : spare;
      p.shift = 8 * pass;
      p.previous = pass == 0 ? nullptr : target == a.order ? spare : a.order;
      status = RunPass(p, a, list, lists, target, pass == passes - 1, stream);
    }
    if (status == cudaSuccess && p.digits) status = CountSizes(p, a, list, lists, stream);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

cudaError_t PrepareRoute() {
  cudaFuncAttributes attributes;
  for (const void* kernel : {reinterpret_cast<const void*>(&routing::CountKernel),
                             reinterpret_cast<const void*>(&routing::PlaceKernel),
                             reinterpret_cast<const void*>(&routing::ClearSizesKernel),
                             reinterpret_cast<const void*>(&routing::CountSizesKernel)}) {
    const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel);
    if (status != cudaSuccess) return status;
  }
  return cudaFuncSetAttribute(routing::PlaceKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              PlaceBytes(kMostBuckets));
}

}  // namespace jaxsparse
