// The best experts of each token, from a router's logits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxsparse {

inline constexpr int64_t kMostTopExperts = 1024;

struct TopExpertsArgs {
  const float* logits;  // [lists, tokens, experts]
  const bool* counts;   // [lists, tokens]: tokens that count; nullptr: all of them
  int64_t lists, tokens, experts, top_k, parts;
  bool normalize;
  int32_t* ids;    // [lists, tokens, top_k]
  float* weights;  // [lists, tokens, top_k]
  float* sums;     // [lists, parts, experts]: together, the tokens' probabilities summed up
};

// One launch for up to 65535 lists. Takes 1 to kMostTopExperts experts, 1 to `experts` of a token,
// and 1 part or more.
cudaError_t LaunchTopExperts(const TopExpertsArgs& args, cudaStream_t stream);

// Once per device, before the first launch and outside any capture.
cudaError_t PrepareTopExperts();

}  // namespace jaxsparse
