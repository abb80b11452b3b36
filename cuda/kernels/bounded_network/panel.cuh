// Layers of a stack by panels: the inputs that sixteen neighbouring bundles have together, of some
// slots, side by side in shared memory, and a warp a bundle.
//
// Neighbouring bundles share inputs (jaxsparse/bounded/bundles.py puts them side by side): in the
// challenge's layers sixteen of them read 272 different ones where each for itself reads 512. A CTA
// keeps its sixteen bundles for the whole launch: a warp's weights and where its entries lie in the
// panel stay in registers, and slots go by, panels on their way while another one is multiplied.
// The first layer reads the images as they are, row by row, where a panel's inputs are neighbours
// in memory: nothing turns them, and they never become state. Which inputs a panel has is worked
// out on the device, once a call (panel_plan.cuh).
//
// Floor: state in and out of memory, 8 bytes a value: .46 ms for a layer of 60,000 rows of 4096. Of
// 64 slots and 272 inputs: 544 copies of a warp, 256 wide loads and 1,024 products (2,048
// tensor-core cycles at the rate of mma.sync), 4.4 us of memory. Predicted: memory-bound, .55 ms.
// Measured: .69 ms for 91 % of those rows, four panels of 32 slots (.74 with two of 64, .72 in
// wide.cuh); the first layer .92 on the images, two panels of 64, whose sectors hold 1.4
// times the values that are wanted (1.02 with four of 32; .47 for turning them and .76 behind it).
#pragma once

#include "cuda/kernels/bounded_network/bundle.cuh"
#include "cuda/kernels/bounded_network/panel_plan.cuh"
#include "cuda/kernels/bounded_network/state.cuh"
#include "cuda/kernels/bounded_network/verdicts.cuh"

namespace jaxsparse {

constexpr int kPanelSteps = kPanelEntries / kStep;

// Slots of a panel, and how many panels there is room for.
template <int kSlots_, int kStages_>
struct PanelShape {
  static constexpr int kTile = kSlots_, kBlocks = kTile / kSlots, kStages = kStages_;
  static constexpr int kRow = kTile + 8;  // floats: rows start eight banks apart
  static constexpr int kPanel = kPanelRows * kRow;
  static constexpr int64_t kShared = int64_t{kStages} * kPanel * sizeof(float);
};

// A tile's rows: slots of a generation, wherever the one before kept them.
class PanelFromState {
 public:
  using Shape = PanelShape<32, 4>;
  static constexpr int kBlocks = Shape::kBlocks;

  __device__ PanelFromState(const float* state, const int32_t* source, uint32_t widest)
      : state_(state), source_(source), widest_(widest) {}

  // Looks up where the rows of a tile are; slots past `count` hold anything.
  __device__ void Find(uint32_t tile, uint32_t count) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const uint32_t slot = tile * Shape::kTile + b * kSlots + threadIdx.x % 32;
      slot_[b] = slot < count ? static_cast<uint32_t>(source_[slot]) : slot;
    }
  }

  // A warp an input: a line of each block.
  __device__ void Copy(const uint32_t* inputs, uint32_t many, float* panel) const {
    const float* line[kBlocks];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) line[b] = state_ + StateOffset(slot_[b], 0, widest_);
    float* const mine = panel + threadIdx.x % 32;
#pragma unroll 4
    for (uint32_t r = threadIdx.x / 32; r < many; r += kPanelWarps) {
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        CopyAsync(mine + r * Shape::kRow + b * kSlots, LineOf(line[b], inputs[r]));
      }
    }
  }

 private:
  const float* const state_;
  const int32_t* const source_;
  const uint32_t widest_;
  uint32_t slot_[kBlocks];
};

// A tile's rows: images as they came. A warp reads four of them, eight inputs each at a time, which
// are a sector where they are neighbours.
class PanelFromRows {
 public:
  using Shape = PanelShape<64, 2>;

  __device__ PanelFromRows(const float* x, uint32_t batch, uint32_t n_in)
      : x_(x), batch_(batch), n_in_(n_in) {}

  __device__ void Find(uint32_t tile, uint32_t) { tile_ = tile; }

  __device__ void Copy(const uint32_t* inputs, uint32_t many, float* panel) const {
    constexpr uint32_t kWarps = Shape::kTile / 4, kParts = kPanelWarps / kWarps;
    const uint32_t image = threadIdx.x / 8 % Shape::kTile, part = threadIdx.x / 32 / kWarps;
    const int64_t row = min(tile_ * Shape::kTile + image, batch_ - 1);
#pragma unroll 4
    for (uint32_t r = part * 8 + threadIdx.x % 8; r < many; r += 8 * kParts) {
      CopyAsync(panel + r * Shape::kRow + image, x_ + row * n_in_ + inputs[r]);
    }
  }

 private:
  const float* const x_;
  const uint32_t batch_, n_in_;
  uint32_t tile_ = 0;
};

// A warp's bundle, in registers. kFinite: the values are known to be finite or NaN.
template <typename Shape, bool kFinite>
class PanelBundle {
 public:
  using Sums = float[Shape::kBlocks][4][4];

  __device__ PanelBundle(const LayerView<uint16_t>& view, const PanelPlan& plan, uint32_t bundle) {
    const uint32_t lane = threadIdx.x % 32, mine = threadIdx.x / 32;
    const uint32_t begin = view.Begin(bundle), end = view.End(bundle);
    length_ = begin < end ? min(end - begin, uint32_t{kPanelEntries}) : 0;
    any_ = 0;
#pragma unroll
    for (int s = 0; s < kPanelSteps; ++s) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t e = s * kStep + half * kStep / 2 + lane % 4;
        row_[s][half] = plan.row[mine][e] * Shape::kRow + lane / 4 * 4;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int64_t at = int64_t{kBundle} * (begin + e) + lane / 4 + r * kBundle / 2;
          const float weight = e < length_ ? __ldg(view.weights + at) : 0.0f;
          lead_[s][2 * half + r] = Leading(weight);
          rest_[s][2 * half + r] = weight - Leading(weight);
          if (rest_[s][2 * half + r] != 0.0f) any_ |= 1u << s;
        }
      }
    }
    any_ = __reduce_or_sync(~0u, any_);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      bias_[r] = __ldg(view.bias + bundle * kBundle + lane / 4 + r * kBundle / 2);
    }
  }

  __device__ void Multiply(const float* panel, Sums& sums) const {
#pragma unroll
    for (int s = 0; s < kPanelSteps; ++s) {
      if (s * kStep >= length_) break;
#pragma unroll
      for (int b = 0; b < Shape::kBlocks; ++b) {
        const float4 x = *reinterpret_cast<const float4*>(panel + row_[s][0] + b * kSlots);
        const float4 y = *reinterpret_cast<const float4*>(panel + row_[s][1] + b * kSlots);
        MultiplySplit<kFinite>(lead_[s], rest_[s], any_ >> s & 1, x, y, sums[b]);
      }
    }
  }

  __device__ const float (&Bias() const)[2] { return bias_; }

 private:
  uint32_t length_, any_;
  uint32_t row_[kPanelSteps][2];
  float lead_[kPanelSteps][4], rest_[kPanelSteps][4], bias_[2];
};

// The verdicts of a tile, gathered in shared memory and handed on a tile later.
template <int kBlocks>
struct PanelWords {
  uint32_t not_zero[2][kBlocks], not_upper[2][kBlocks];

  __device__ void Flush(int at, uint32_t tile, const BlockVerdicts& verdicts) {
    const uint32_t b = threadIdx.x;
    if (b >= kBlocks) return;
    if (not_zero[at][b] != 0) atomicOr(verdicts.not_zero + tile * kBlocks + b, not_zero[at][b]);
    if (not_upper[at][b] != 0) {
      atomicOr(verdicts.not_upper + tile * kBlocks + b, not_upper[at][b]);
    }
    not_zero[at][b] = not_upper[at][b] = 0;
  }
};

// One group of sixteen bundles, every `step`-th of the tiles from `tile` on.
template <bool kFinite, typename Source>
__device__ void PanelTiles(const StackView& stack, uint32_t layer, uint32_t group,
                           const PanelPlan& plan, Source source, float* to,
                           const BlockVerdicts& verdicts, uint32_t tile, uint32_t step,
                           uint32_t count) {
  using Shape = typename Source::Shape;
  constexpr int kStages = Shape::kStages;
  extern __shared__ float panels[];
  __shared__ uint32_t inputs[kPanelRows];
  __shared__ PanelWords<Shape::kBlocks> words;
  const LayerView<uint16_t> view = LayerOf<uint16_t>(stack, layer, InputsOf(stack, layer));
  const uint32_t bundle = group * kPanelBundles + threadIdx.x / 32;
  const uint32_t last = Distinct(stack, layer) / kBundle - 1;
  const uint32_t tiles = (count + Shape::kTile - 1) / Shape::kTile;
  const uint32_t many = min(plan.many, uint32_t{kPanelRows} - 1);
  const int64_t block = static_cast<int64_t>(kSlots) * stack.widest;
  const float upper = __ldg(stack.uppers + layer);
  __syncthreads();
  for (uint32_t r = threadIdx.x; r < many; r += kPanelThreads) inputs[r] = plan.input[r];
  if (threadIdx.x < kStages * Shape::kRow) {
    const uint32_t stage = threadIdx.x / Shape::kRow;
    panels[stage * Shape::kPanel + kPanelZeros * Shape::kRow + threadIdx.x % Shape::kRow] = 0.0f;
  }
  if (threadIdx.x < Shape::kBlocks) {
    words.not_zero[0][threadIdx.x] = words.not_zero[1][threadIdx.x] = 0;
    words.not_upper[0][threadIdx.x] = words.not_upper[1][threadIdx.x] = 0;
  }
  const PanelBundle<Shape, kFinite> mine(view, plan, min(bundle, last));
  source.Find(tile, count);
  __syncthreads();
  // The tile that is copied, kStages - 1 ahead of the one that is multiplied.
  uint32_t ahead = tile;
  const auto copy = [&](int stage) {
    if (ahead < tiles) source.Copy(inputs, many, panels + stage * Shape::kPanel);
    CommitCopies();
    ahead += step;
    source.Find(ahead, count);
  };
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) copy(stage);
  int at = 0, stage = 0;
  for (; tile < tiles; tile += step, at ^= 1) {
    WaitCopies<kStages - 2>();
    __syncthreads();
    copy(stage == 0 ? kStages - 1 : stage - 1);
    const float* const panel = panels + stage * Shape::kPanel;
    stage = stage + 1 == kStages ? 0 : stage + 1;
    words.Flush(at ^ 1, tile - step, verdicts);
    typename PanelBundle<Shape, kFinite>::Sums sums = {};
    mine.Multiply(panel, sums);
    if (bundle > last) continue;
    BundleProbe probe;
    StoreBundle(sums, mine.Bias(), bundle * kBundle + threadIdx.x % 32 / 4,
                to + StateOffset(tile * Shape::kTile, 0, stack.widest), block, upper, probe);
    probe.Merge<Shape::kBlocks>(words.not_zero[at], words.not_upper[at]);
  }
  __syncthreads();
  words.Flush(at ^ 1, tile - step, verdicts);
}

// Every group of a layer: a CTA for each, or as many as there are CTAs. kRows: layer 0 on the
// images. Clears the number of the slots that the next launch gives away.
template <bool kFirst, bool kRows>
__global__ void __launch_bounds__(kPanelThreads, 1)
    PanelLayer(const __grid_constant__ StackView stack, const PanelPlan* plans, const float* x,
               uint32_t batch, uint32_t n_in, const float* from, const int32_t* source, float* to,
               BlockVerdicts verdicts, const uint32_t* slots, uint32_t* next, uint32_t layer) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *next = 0;
  const uint32_t count = *slots;
  const uint32_t groups = PanelGroups(Distinct(stack, layer));
  if (groups == 0 || !Bundled(stack, layer)) return;
  const uint32_t step = max(gridDim.x / groups, 1u), tile = blockIdx.x / groups;
  if (tile >= step) return;
  for (uint32_t group = blockIdx.x % groups; group < groups; group += gridDim.x) {
    if constexpr (kRows) {
      PanelTiles<!kFirst>(stack, layer, group, plans[group], PanelFromRows(x, batch, n_in), to,
                          verdicts, tile, step, count);
    } else {
      PanelTiles<!kFirst>(stack, layer, group, plans[group],
                          PanelFromState(from, source, stack.widest), to, verdicts, tile, step,
                          count);
    }
  }
}

}  // namespace jaxsparse
