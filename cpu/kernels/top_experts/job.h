// The best experts of a token, from a router's logits.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace jaxsparse {

// Sorts like the number: -0 below 0, a NaN above infinity.
inline int32_t OrderOf(float v) {
  if (v != v) return std::numeric_limits<int32_t>::max();
  int32_t bits;
  std::memcpy(&bits, &v, sizeof bits);
  return bits < 0 ? bits ^ std::numeric_limits<int32_t>::max() : bits;
}

// The k greatest logits, the greatest first, of equal ones the lower expert: an insertion sort of
// what is known so far.
inline void BestExperts(const float* logits, int64_t experts, int64_t k, int32_t* ids) {
  int64_t filled = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const int32_t order = OrderOf(logits[e]);
    if (filled == k && order <= OrderOf(logits[ids[k - 1]])) continue;
    int64_t at = filled < k ? filled++ : k - 1;
    for (; at > 0 && OrderOf(logits[ids[at - 1]]) < order; --at) ids[at] = ids[at - 1];
    ids[at] = static_cast<int32_t>(e);
  }
}

// ids[k] and weights[k] of one token; its probabilities, softmax of the logits, are added to
// `sums`.
inline void TopExpertsOfToken(const float* logits, int64_t experts, int64_t k, bool normalize,
                              int32_t* ids, float* weights, float* sums) {
  BestExperts(logits, experts, k, ids);
  const float greatest = logits[ids[0]];
  float total = 0.0f, chosen = 0.0f;
  for (int64_t e = 0; e < experts; ++e) total += std::exp(logits[e] - greatest);
  for (int64_t e = 0; e < experts; ++e) sums[e] += std::exp(logits[e] - greatest) / total;
  for (int64_t i = 0; i < k; ++i) {
    weights[i] = std::exp(logits[ids[i]] - greatest);
    chosen += weights[i];
  }
  for (int64_t i = 0; i < k; ++i) weights[i] /= normalize ? chosen : total;
}

}  // namespace jaxsparse
