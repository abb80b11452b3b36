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
  // Sizes of the packed arrays: `entries` of indices, `weighed` of weights.
  int64_t starts_size, entries, weighed, bias_size, n_out;
  uint32_t n_in, widest, depth;
  bool bundles;  // some layer has them
};

// What a layer's row of the table says. The table is data of the device, so the host cannot refuse
// one that points outside of the packed arrays; these functions cut what it says, once a layer, to
// what there is.
__device__ inline uint32_t Column(const StackView& stack, uint32_t layer, int column) {
  return __ldg(stack.table + layer * kTableColumns + column);
}

__device__ inline int64_t StateOffset(uint32_t slot, uint32_t value, uint32_t widest) {
  return static_cast<int64_t>(slot / kSlots) * kSlots * widest +
         static_cast<int64_t>(value) * kSlots + slot % kSlots;
}

// Whether a layer's units are bundles.
__device__ inline bool Bundled(const StackView& stack, uint32_t layer) {
  return stack.bundles && Column(stack, layer, 7) == kBundle;
}

// Its rows that have a bias, and a unit with a start and an end.
__device__ inline uint32_t Distinct(const StackView& stack, uint32_t layer) {
  const int64_t units = stack.starts_size - 1 - Column(stack, layer, 0);
  const int64_t rows = units * (Bundled(stack, layer) ? kBundle : 1);
  const int64_t left = min(rows, stack.bias_size - Column(stack, layer, 2));
  const uint32_t said = min(Column(stack, layer, 4), stack.widest);
  return static_cast<uint32_t>(min(int64_t{said}, max(left, int64_t{0})));
}

__device__ inline uint32_t Retires(const StackView& stack, uint32_t layer) {
  return Column(stack, layer, 5);
}

template <typename Index>
__device__ LayerView<Index> LayerOf(const StackView& stack, uint32_t layer, uint32_t inputs) {
  const int64_t entry = 4 * static_cast<int64_t>(Column(stack, layer, 1));
  const int64_t weight = 4 * static_cast<int64_t>(Column(stack, layer, 6));
  const int64_t rows = Bundled(stack, layer) ? kBundle : 1;
  const int64_t left = max(min(stack.entries - entry, (stack.weighed - weight) / rows), int64_t{0});
  LayerView<Index> view;
  view.starts = stack.starts + Column(stack, layer, 0);
  view.indices = static_cast<const Index*>(stack.indices) + entry;
  view.weights = stack.weights + weight;
  view.bias = stack.bias + Column(stack, layer, 2);
  view.last = inputs == 0 ? 0 : inputs - 1;
  view.entries = inputs == 0 ? 0 : static_cast<uint32_t>(min(left, int64_t{INT32_MAX})) & ~3u;
  return view;
}

// What layer `layer` reads: the distinct values of the one before, or the images.
__device__ inline uint32_t InputsOf(const StackView& stack, uint32_t layer) {
  return min(Column(stack, layer, 3), layer == 0 ? stack.n_in : stack.widest);
}

}  // namespace jaxsparse
