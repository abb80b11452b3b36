// What the kernels of the grouped products know about their problem.
#pragma once

#include "cuda/kernels/grouped_matmul/workspace.h"
#include "cuda/tile/load/row_gather.cuh"

namespace jaxsparse {

struct GroupedParams {
  SortedRows lhs;
  GroupedPlan plan;  // header nullptr: CTAs read the sizes themselves
  const int32_t* sizes;
  int groups, sorted_rows;
  CombineSlots combine;
  const float* row_weights;  // nullptr: 1
  void* out;                 // sorted row i's product is row i here
  int outputs, n_tiles, k_steps;
  bool out_f32;
  bool contiguous;  // no gather: lhs comes in boxes
  bool read_once;   // few rows a group: the weights are not read again
};

// Sorted row `row` is told to row `target` of out, which adds it up.
__device__ __forceinline__ void AnnounceRow(const CombineSlots& c, int row, int target) {
  const int place = atomicAdd(c.counts + target, 1);
  if (place < c.capacity) {
    c.slots[static_cast<int64_t>(target) * c.capacity + place] = row;
  }
}

}  // namespace jaxsparse
