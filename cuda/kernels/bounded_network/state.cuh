// What the launches of one stack share: where the state of the undecided rows lies between them.
//
// Rows that are still undecided have slots; 32 slots are a block, whose values lie neuron by
// neuron: value o of slot s at (s / 32) * 32 * widest + o * 32 + s % 32. Loads and stores of
// neighbouring slots are contiguous, and the images of a neuron are what a warp's lanes hold.
#pragma once

#include <cstdint>

#include "cuda/recorder/probe.cuh"
#include "cuda/tile/load/packed_rows.cuh"

namespace jaxsparse {

constexpr int kSlots = 32;
constexpr int kTileSlots = 128, kTileBlocks = kTileSlots / kSlots;
constexpr int kTableColumns = 8;
constexpr uint32_t kRetireZero = 1, kRetireUpper = 2;

// One generation of rows.
struct Generation {
  float* state;
  int32_t* rows;    // [slots], which image a slot holds
  uint32_t* count;  // slots in use
  uint32_t* queue;  // the next tile to take
};

struct StackView {
  const uint32_t* table;
  const int32_t* starts;
  const void* indices;
  const float* weights;
  const float* bias;
  const float* uppers;
  const int32_t* expand;
  float* out;
  uint8_t* codes;
  int64_t entries, weighed, n_out;  // entries: indices; weighed: weights
  uint32_t widest, depth;
};

__device__ inline int64_t StateOffset(uint32_t slot, uint32_t value, uint32_t widest) {
  return static_cast<int64_t>(slot / kSlots) * kSlots * widest +
         static_cast<int64_t>(value) * kSlots + slot % kSlots;
}

__device__ inline uint32_t Distinct(const StackView& stack, uint32_t layer) {
  return min(__ldg(stack.table + layer * kTableColumns + 4), stack.widest);
}

__device__ inline uint32_t Retires(const StackView& stack, uint32_t layer) {
  return __ldg(stack.table + layer * kTableColumns + 5);
}

// Whether a layer's units are bundles.
__device__ inline bool Bundled(const StackView& stack, uint32_t layer) {
  return __ldg(stack.table + layer * kTableColumns + 7) == kBundle;
}

template <typename Index>
__device__ LayerView<Index> LayerOf(const StackView& stack, uint32_t layer, uint32_t inputs) {
  const uint32_t* row = stack.table + layer * kTableColumns;
  const int64_t entry = 4 * static_cast<int64_t>(__ldg(row + 1));
  const int64_t weight = 4 * static_cast<int64_t>(__ldg(row + 6));
  const int64_t rows = Bundled(stack, layer) ? kBundle : 1;
  const int64_t left = min(stack.entries - entry, (stack.weighed - weight) / rows);
  LayerView<Index> view;
  view.starts = stack.starts + __ldg(row);
  view.indices = static_cast<const Index*>(stack.indices) + entry;
  view.weights = stack.weights + weight;
  view.bias = stack.bias + __ldg(row + 2);
  view.last = inputs == 0 ? 0 : inputs - 1;
  view.entries = inputs == 0 ? 0 : static_cast<uint32_t>(min(left, int64_t{INT32_MAX})) & ~3u;
  return view;
}

// What layer `layer` reads: the distinct values of the one before, or the images.
__device__ inline uint32_t InputsOf(const StackView& stack, uint32_t layer) {
  return min(__ldg(stack.table + layer * kTableColumns + 3), stack.widest);
}

}  // namespace jaxsparse
