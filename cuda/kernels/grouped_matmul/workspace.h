// What lies where in the workspace of the grouped products, and the bookkeeping of the combine.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/kernels/grouped_matmul/args.h"
#include "cuda/kernels/grouped_matmul/plan.h"

namespace jaxsparse {

// Sorted rows that are added up into rows of out wait in the workspace. Every row of out counts
// them and keeps the first `capacity` of their numbers, in any order.
struct CombineSlots {
  const int32_t* scatter;  // nullptr: nothing is added up
  int32_t* counts;         // [out_rows], zero before the product
  int32_t* slots;          // [out_rows, capacity]
  int capacity;            // at most 32
};

// Room for the mean and four of its square roots: where targets are random, next to no row of out
// has more. The expert-choice routing of a mixture is like that.
inline int SlotCapacity(const GroupedShape& s) {
  const int64_t mean = (s.sorted_rows + s.out_rows - 1) / std::max<int64_t>(s.out_rows, 1);
  return mean <= 2 ? 8 : mean <= 4 ? 16 : 32;
}

struct GroupedWorkspace {
  GroupedPlan plan;
  CombineSlots combine;
  void* rows;      // [sorted_rows, outputs] of the result's type: products before the combine
  float* weights;  // [groups, outputs, depth]: TF32 weights with K contiguous
  int64_t bytes;

  // The parts of a workspace at `base`; with nullptr only `bytes` means something.
  static GroupedWorkspace Of(const GroupedShape& s, int tile_m, bool scatters, DType out_type,
                             bool transposed_weights, void* base) {
    GroupedWorkspace w = {};
    const auto take = [&](int64_t bytes) {
      char* const at = static_cast<char*>(base) + w.bytes;
      w.bytes += (bytes + 255) / 256 * 256;
      return static_cast<void*>(at);
    };
    w.plan.header = static_cast<int32_t*>(take(4 * kPlanHeader));
    w.plan.starts = static_cast<int32_t*>(take(4 * (s.groups + 1)));
    w.plan.tiles = static_cast<RowTile*>(
        take(MaxRowTiles(s.sorted_rows, s.groups, tile_m) * int64_t{sizeof(RowTile)}));
    if (scatters) {
      w.combine.capacity = SlotCapacity(s);
      w.combine.counts = static_cast<int32_t*>(take(4 * s.out_rows));
      w.combine.slots = static_cast<int32_t*>(take(4 * s.out_rows * w.combine.capacity));
      w.rows = take(s.sorted_rows * s.outputs * (out_type == DType::kF32 ? 4 : 2));
    }
    if (transposed_weights) {
      w.weights = static_cast<float*>(take(4 * s.groups * s.depth * s.outputs));
    }
    return w;
  }
};

}  // namespace jaxsparse
