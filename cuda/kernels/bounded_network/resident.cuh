// Layers [first, last) of a stack with the rows resident in shared memory, persistent over tiles of
// rows.
//
// A CTA takes a tile of kImages rows from the queue, keeps two generations of their folded state in
// shared memory from layer to layer, drops rows as they are decided for good, and hands what is
// left to the next launch, compacted, so that every tile of it is full again. Lanes are images:
// kImages / 4 lanes hold one output of the tile, four images each, so an entry is one 16-byte
// shared load and four multiply-adds, and 32 images of a neuron are one conflict-free line.
//
// Floor: shared memory at 128 bytes a cycle: 32 multiply-adds a cycle and SM of rows, 7.2 T/s on an
// H200; of bundles (cuda/kernels/bounded_network/unit.cuh) 85. Predicted for the whole stack,
// 60,000 images, with the first layer (first.cuh), folded: .15 / .6 / 2 / 8 ms at 1024 /
// 4096 / 16384 / 65536 neurons; measured .35 / .93 / 3.1 / 13, most of it the first layer. Bundles
// of 1024 values are 16 rows a tile and one CTA an SM, whose way in and out of memory is not
// hidden: .28 ms a full layer where wide.cuh takes .23. They come here in small batches,
// where no row retires, and for the layers of few rows.
#pragma once

#include "cuda/kernels/bounded_network/state.cuh"
#include "cuda/kernels/bounded_network/unit.cuh"

namespace jaxsparse {

// The decided states of a tile, one word each, for three layers in turn: a layer's words are
// cleared two barriers before they are written again.
struct TileVerdict {
  uint32_t not_zero[3], not_upper[3];
  uint32_t tile, base;
  int32_t rows[kSlots];
};

template <int kImages, bool kBundles, typename Index>
class ResidentTile {
 public:
  static constexpr int kGroups = kImages / 4;

  __device__ ResidentTile(const StackView& stack, float* shared, TileVerdict& verdict)
      : stack_(stack),
        verdict_(verdict),
        in_(shared),
        out_(shared + static_cast<int64_t>(stack.widest) * kImages) {}

  // Copies the tile's state, the input of layer `first`, and clears the verdicts. Slots past
  // `count` are empty.
  __device__ void Load(const Generation& from, uint32_t slot, uint32_t count, uint32_t first) {
    if (threadIdx.x < 3) verdict_.not_zero[threadIdx.x] = verdict_.not_upper[threadIdx.x] = 0;
    if (threadIdx.x < kImages) {
      const bool used = slot + threadIdx.x < count;
      verdict_.rows[threadIdx.x] = used ? from.rows[slot + threadIdx.x] : -1;
    }
    const uint32_t left = count - slot;
    alive_ = left >= kImages ? kAll : (1u << left) - 1;
    __syncthreads();
    const int group = threadIdx.x % kGroups;
    const uint32_t before = first == 0 ? 0 : first - 1;
    SaturationProbe probe(__ldg(stack_.uppers + before));
    const uint32_t inputs = InputsOf(stack_, first);
    for (uint32_t o = threadIdx.x / kGroups; o < inputs; o += blockDim.x / kGroups) {
      const float4 v = *reinterpret_cast<const float4*>(
          from.state + StateOffset(slot + 4 * group, o, stack_.widest));
      const float y[4] = {v.x, v.y, v.z, v.w};
      probe.See(y);
      *reinterpret_cast<float4*>(out_ + o * kImages + 4 * group) = v;
    }
    if (first > 0) {
      probe.Merge(kGroups, &verdict_.not_zero[before % 3], &verdict_.not_upper[before % 3]);
    }
    __syncthreads();
  }

  // Whose rows are decided after `layer`: their codes are written, and they are dropped. Uniform
  // over the CTA.
  __device__ bool Settle(uint32_t layer) {
    const uint32_t retires = Retires(stack_, layer);
    const uint32_t zero = retires & kRetireZero ? ~verdict_.not_zero[layer % 3] : 0;
    const uint32_t upper = retires & kRetireUpper ? ~verdict_.not_upper[layer % 3] : 0;
    const uint32_t done = (zero | upper) & alive_;
    if (threadIdx.x < kImages && done >> threadIdx.x & 1) {
      stack_.codes[verdict_.rows[threadIdx.x]] = zero >> threadIdx.x & 1 ? kZero : kUpper;
    }
    if (threadIdx.x == 0)
      verdict_.not_zero[(layer + 2) % 3] = verdict_.not_upper[(layer + 2) % 3] = 0;
    alive_ &= ~done;
    return alive_ != 0;
  }

  __device__ void Multiply(uint32_t layer) {
    float* const before = in_;
    in_ = out_;
    out_ = before;
    const LayerView<Index> view = LayerOf<Index>(stack_, layer, InputsOf(stack_, layer));
    const float upper = __ldg(stack_.uppers + layer);
    const int group = threadIdx.x % kGroups;
    SaturationProbe probe(upper);
    Units<kBundles, kImages>(view, Distinct(stack_, layer), Bundled(stack_, layer),
                             threadIdx.x / kGroups, blockDim.x / kGroups, in_ + 4 * group,
                             out_ + 4 * group, upper, probe);
    probe.Merge(kGroups, &verdict_.not_zero[layer % 3], &verdict_.not_upper[layer % 3]);
    __syncthreads();
  }

  // The rows that are left take slots of the next generation.
  __device__ void HandOver(const Generation& to, uint32_t layer) {
    if (threadIdx.x == 0) verdict_.base = atomicAdd(to.count, __popc(alive_));
    __syncthreads();
    const uint32_t base = verdict_.base;
    const uint32_t image = threadIdx.x % kImages;
    const uint32_t slot = base + __popc(alive_ & ((1u << image) - 1));
    if (!(alive_ >> image & 1)) return;
    if (threadIdx.x < kImages) to.rows[slot] = verdict_.rows[image];
    const uint32_t distinct = Distinct(stack_, layer);
    for (uint32_t o = threadIdx.x / kImages; o < distinct; o += blockDim.x / kImages) {
      to.state[StateOffset(slot, o, stack_.widest)] = out_[o * kImages + image];
    }
  }

  // The rows that are left are mixed results.
  __device__ void Write() const {
    for (uint32_t image = 0; image < kImages; ++image) {
      if (!(alive_ >> image & 1)) continue;
      const int64_t row = verdict_.rows[image];
      if (threadIdx.x == 0) stack_.codes[row] = kMixed;
      for (int64_t n = threadIdx.x; n < stack_.n_out; n += blockDim.x) {
        const uint32_t o = stack_.expand ? __ldg(stack_.expand + n) : static_cast<uint32_t>(n);
        stack_.out[row * stack_.n_out + n] = out_[min(o, stack_.widest - 1) * kImages + image];
      }
    }
  }

 private:
  static constexpr uint32_t kAll = kImages == 32 ? ~0u : (1u << (kImages % 32)) - 1;

  const StackView& stack_;
  TileVerdict& verdict_;
  float *in_, *out_;
  uint32_t alive_ = 0;
};

// Bundles keep sixty-four sums a thread, so their CTAs have fewer threads.
constexpr int ResidentThreads(bool bundles) { return bundles ? 4096 / kPart : 1024; }

// With first == 0 the state is the images themselves.
template <int kImages, bool kBundles, typename Index>
__global__ void __launch_bounds__(ResidentThreads(kBundles))
    ResidentLayers(const __grid_constant__ StackView stack, Generation from, Generation to,
                   uint32_t first, uint32_t last) {
  extern __shared__ float4 shared[];
  __shared__ TileVerdict verdict;
  ResidentTile<kImages, kBundles, Index> tile(stack, reinterpret_cast<float*>(shared), verdict);
  const uint32_t count = *from.count;
  for (;;) {
    __syncthreads();
    if (threadIdx.x == 0) verdict.tile = atomicAdd(from.queue, 1u);
    __syncthreads();
    const uint32_t slot = verdict.tile * kImages;
    if (slot >= count) return;
    tile.Load(from, slot, count, first);
    bool left = first == 0 || tile.Settle(first - 1);
    for (uint32_t layer = first; left && layer < last; ++layer) {
      tile.Multiply(layer);
      left = tile.Settle(layer);
    }
    if (!left) continue;
    if (last == stack.depth) {
      tile.Write();
    } else {
      tile.HandOver(to, last - 1);
    }
  }
}

}  // namespace jaxsparse
