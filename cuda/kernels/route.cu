// Routing: one pass where the experts fit a pass's buckets, else a radix sort, a byte a pass.
#include "cuda/kernels/route.h"

#include <algorithm>

#include "cuda/kernels/route.cuh"

namespace jaxsparse {
namespace {

using routing::Pass;

constexpr int kMostBuckets = 512;  // 32 KB of counts a block
constexpr int kMostLists = 65535;  // of one launch

int64_t Blocks(int64_t assignments) {
  return std::max<int64_t>(1, (assignments + routing::kItems - 1) / routing::kItems);
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

cudaError_t RunPass(const Pass& p, const RouteArgs& a, int64_t list, int64_t lists, int32_t* order,
                    bool last, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(Blocks(a.assignments)), static_cast<unsigned>(lists));
  const int shared = routing::kWarps * p.buckets * 4;
  const int64_t items = list * a.assignments;
  Pass here = p;
  here.ids += items;
  if (here.previous != nullptr) here.previous += items;
  routing::CountKernel<<<grid, routing::kThreads, shared, stream>>>(here, a.scratch);
  const bool sizes = last && !p.digits;
  routing::PlaceKernel<<<grid, routing::kThreads, shared, stream>>>(
      here, a.scratch, order + items, last ? a.source + items : nullptr,
      sizes ? a.group_sizes + list * a.experts : nullptr, static_cast<int>(a.top_k));
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
  const int64_t counts = together * Blocks(assignments) * Buckets(experts);
  return counts + (Passes(experts) > 1 ? lists * assignments : 0) + 1;
}

cudaError_t LaunchRoute(const RouteArgs& a, cudaStream_t stream) {
  if (a.scratch_words < RouteScratchWords(a.lists, a.assignments, a.experts)) {
    return cudaErrorInvalidValue;
  }
  const int passes = Passes(a.experts);
  const int64_t together = std::min<int64_t>(a.lists, kMostLists);
  int32_t* const spare = a.scratch + together * Blocks(a.assignments) * Buckets(a.experts);
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
  return cudaSuccess;
}

}  // namespace jaxsparse
