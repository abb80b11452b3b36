// Routing: a stable counting sort of assignments by expert.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxsparse {

struct RouteArgs {
  const int32_t* ids;  // [lists, assignments]
  int64_t lists, assignments, experts, top_k;
  int32_t* order;        // [lists, assignments]
  int32_t* source;       // [lists, assignments]
  int32_t* group_sizes;  // [lists, experts]
  int32_t* scratch;
  int64_t scratch_words;
};

// Of the shapes alone.
int64_t RouteScratchWords(int64_t lists, int64_t assignments, int64_t experts);

// Two launches up to 511 experts, of which the second starts early; two a byte of the expert's
// number, and two more, beyond.
cudaError_t LaunchRoute(const RouteArgs& args, cudaStream_t stream);

// Once per device, before the first launch and outside any capture.
cudaError_t PrepareRoute();

}  // namespace jaxsparse
