// Which inputs a panel has: those of sixteen bundles in a row, each once, ascending; and where each
// entry's input lies in it.
//
// A CTA a group of bundles and layer, a thread an entry: it compares itself with the 511 others,
// twice (is it the first with its input, and how many smaller inputs are there). About 4 us, and
// groups are many at a time.
#pragma once

#include <cstdint>

#include "cuda/kernels/bounded_network/state.cuh"

namespace jaxsparse {

constexpr int kPanelBundles = 16;  // a warp each
constexpr int kPanelWarps = kPanelBundles, kPanelThreads = 32 * kPanelWarps;
constexpr int kPanelEntries = 32;            // of a bundle, at most
constexpr int kPanelRows = 304;              // inputs, and a row of zeros
constexpr int kPanelZeros = kPanelRows - 1;  // where an entry is that a bundle does not have
constexpr int kPanelLayers = 34;             // as many are planned

struct alignas(16) PanelPlan {
  uint32_t many, unused[3];
  uint32_t input[kPanelRows];
  uint16_t row[kPanelBundles][kPanelEntries];
};
static_assert(sizeof(PanelPlan) == 2256, "Python counts a plan's bytes");

__host__ __device__ constexpr uint32_t PanelGroups(uint32_t distinct) {
  return (distinct / kBundle + kPanelBundles - 1) / kPanelBundles;
}

// Block: group blockIdx.x % groups of layer blockIdx.x / groups. `groups`: of the widest layer.
template <typename Index>
__global__ void __launch_bounds__(kPanelThreads)
    PlanPanels(const __grid_constant__ StackView stack, uint32_t groups, PanelPlan* plans) {
  constexpr uint32_t kNone = ~0u;
  __shared__ uint32_t all[kPanelThreads], firsts[kPanelThreads];
  const uint32_t layer = blockIdx.x / groups, group = blockIdx.x % groups, me = threadIdx.x;
  const uint32_t bundles = Distinct(stack, layer) / kBundle;
  const uint32_t bundle = group * kPanelBundles + me / kPanelEntries;
  if (group * kPanelBundles >= bundles) return;
  const LayerView<Index> view = LayerOf<Index>(stack, layer, InputsOf(stack, layer));
  uint32_t input = kNone;
  if (bundle < bundles) {
    const uint32_t entry = view.Begin(bundle) + me % kPanelEntries;
    if (entry < view.End(bundle))
      input = min(static_cast<uint32_t>(view.indices[entry]), view.last);
  }
  all[me] = input;
  __syncthreads();
  bool first = input != kNone;
  for (uint32_t other = 0; other < me; ++other) first &= all[other] != input;
  firsts[me] = first ? input : kNone;
  const uint32_t many = __syncthreads_count(first);
  uint32_t rank = 0;
  for (uint32_t other = 0; other < kPanelThreads; ++other) rank += firsts[other] < input;
  PanelPlan& plan = plans[blockIdx.x];
  rank = input == kNone ? kPanelZeros : min(rank, uint32_t{kPanelZeros} - 1);
  plan.row[me / kPanelEntries][me % kPanelEntries] = static_cast<uint16_t>(rank);
  if (first) plan.input[rank] = input;
  if (me == 0) plan.many = min(many, uint32_t{kPanelZeros});
}

}  // namespace jaxsparse
