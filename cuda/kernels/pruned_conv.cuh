// A convolution with frozen weights, data-driven: an entry is a number and where the window of its
// tap begins.
//
// Floor: every product of a kept weight reads one float of the image from shared memory: 128 bytes
// a cycle an SM are 32 products, a quarter of the FMA rate; 132 SMs at 1.755 GHz make 7.4e12
// products a second. Beside it the image moves to each block that serves other outputs of it.
//
// A block serves a tile of output positions (rows x columns of one image, or whole small images)
// and a slab of output channels. The tile's input lies in shared memory channel by channel, padded
// with zeros, so that all positions of a tap are one contiguous run (pruned_conv_panel.cuh): lanes
// are neighbouring positions, no lane meets another's bank, and padding costs the products nothing.
// The few places between the rows of a tile are computed and not stored. A warp owns kOutputs
// outputs (dealt out by size) at 32 * kPositions positions, all of them accumulators, and reads its
// entries as one stream, four at a time, two ahead. Two buffers: half of the warps fill one with
// the next chunk of channels while the others multiply the one before, then they change places.
//
// Predicted 50 us for 64 -> 64 channels, 3x3, 56x56, batch 32, 90 %; measured 123 (H200). A model
// fitted to 322 measurements says why: 4 * kPositions + 5.7 cycles a quad for shared memory, 3.8
// cycles for 32 floats of the image, 670 cycles for each batch of loads that a warp waits for, and
// 6,100 cycles for a block to start and end; little of it overlaps.
#pragma once

#include <cstdint>

#include "cuda/kernels/masked_conv_element.cuh"
#include "cuda/kernels/pruned_conv.h"
#include "cuda/kernels/pruned_conv_panel.cuh"

namespace jaxsparse {

// Four entries.
struct WindowQuad {
  float4 value;
  uint2 offset;  // floats into the buffer, 16 bits each
};

// The entries of a warp, two quads ahead.
class WindowStream {
 public:
  __device__ WindowStream(const PrunedArgs& args, int32_t first)
      : values_(static_cast<const float4*>(args.values)),
        offsets_(static_cast<const uint2*>(args.indices)),
        at_(static_cast<uint32_t>(max(first, 0))),
        last_(static_cast<uint32_t>(args.entries / 4 - 1)) {
    Touch(at_);
    next_ = Load();
    after_ = Load();
  }

  __device__ __forceinline__ WindowQuad Next() {
    const WindowQuad quad = next_;
    next_ = after_;
    after_ = Load();
    return quad;
  }

 private:
  __device__ __forceinline__ WindowQuad Load() {
    if (at_ % kTouched == 0) Touch(at_ + kTouched);
    const uint32_t i = min(at_++, last_);
    return {__ldg(values_ + i), __ldg(offsets_ + i)};
  }

  // Brings the quads from `first` on to the first-level cache; nobody waits for it.
  __device__ __forceinline__ void Touch(uint32_t first) const {
    constexpr uint32_t kValueLines = kTouched * sizeof(float4) / 128;
    constexpr uint32_t kLines = kValueLines + kTouched * sizeof(uint2) / 128;
    const uint32_t lane = threadIdx.x % 32;
    if (lane >= kLines) return;
    const void* line = lane < kValueLines
                           ? static_cast<const void*>(values_ + min(first + lane * 8, last_))
                           : offsets_ + min(first + (lane - kValueLines) * 16, last_);
    [[maybe_unused]] uint32_t unused;
    asm volatile("ld.global.nc.b32 %0, [%1];" : "=r"(unused) : "l"(line));
  }

  static constexpr uint32_t kTouched = 64;  // quads at a time

  const float4* values_;
  const uint2* offsets_;
  uint32_t at_, last_;
  WindowQuad next_, after_;
};

// Adds the products of one output's entries in a chunk. `limit` twice 16 bits: the largest offset.
template <int kPositions>
__device__ __forceinline__ void MultiplyWindows(WindowStream& entries, int quads,
                                                const float* windows, uint32_t limit,
                                                float (&sums)[kPositions]) {
#pragma unroll 2
  for (int i = 0; i < quads; ++i) {
    const WindowQuad quad = entries.Next();
    const uint32_t low = __vminu2(quad.offset.x, limit), high = __vminu2(quad.offset.y, limit);
    const float value[4] = {quad.value.x, quad.value.y, quad.value.z, quad.value.w};
    const uint32_t at[4] = {low & 0xffff, low >> 16, high & 0xffff, high >> 16};
    float x[4][kPositions];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int p = 0; p < kPositions; ++p) x[e][p] = windows[at[e] + 32 * p];
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int p = 0; p < kPositions; ++p) sums[p] = fmaf(x[e][p], value[e], sums[p]);
    }
  }
}

// The activations that need more than a comparison: one function for all sums.
inline __device__ __noinline__ float Smooth(Activation kind, float v) {
  return simt::Activate(kind, v);
}

// An activation as two bounds, which let a NaN pass, or as a function.
class SumActivation {
 public:
  __device__ explicit SumActivation(Activation kind)
      : kind_(kind),
        smooth_(kind == Activation::kSilu || kind == Activation::kGelu),
        low_(kind == Activation::kRelu || kind == Activation::kRelu6 ? 0.0f : -kInfinity),
        high_(kind == Activation::kRelu6 ? 6.0f : kInfinity) {}

  __device__ __forceinline__ float Of(float v) const {
    if (smooth_) return Smooth(kind_, v);
    v = v < low_ ? low_ : v;
    return v > high_ ? high_ : v;
  }

 private:
  static constexpr float kInfinity = __builtin_huge_valf();

  Activation kind_;
  bool smooth_;
  float low_, high_;
};

// Stores a warp's sums at the positions that exist.
template <typename T, int kOutputs, int kPositions>
class WindowStore {
 public:
  __device__ WindowStore(const PrunedArgs& args, const WindowsLayout& layout,
                         const WindowsTile& tile, const int32_t* outputs)
      : args_(args), layout_(layout), tile_(tile) {
#pragma unroll
    for (int j = 0; j < kOutputs; ++j) {
      const int32_t output = __ldg(outputs + j);
      outputs_[j] = output < args.n ? output : -1;
      bias_[j] = args.bias != nullptr && outputs_[j] >= 0 ? __ldg(args.bias + output) : 0.0f;
    }
  }

  __device__ void Store(const float (&sums)[kOutputs][kPositions], int first) const {
    const SumActivation activation(args_.activation);
#pragma unroll
    for (int p = 0; p < kPositions; ++p) {
      const int64_t to = Target(first + 32 * p);
      if (to < 0) continue;
      float out[kOutputs];
#pragma unroll
      for (int j = 0; j < kOutputs; ++j) {
        out[j] = activation.Of(sums[j][p] + bias_[j]);
      }
      Write(to, out);
    }
  }

 private:
  // Where output 0 of a place in the tile goes; -1 where no such pixel is.
  __device__ int64_t Target(int place) const {
    const ConvGeometry& g = args_.geometry;
    const int image = Divide(place, layout_.by_image);
    const int in_image = place - image * (layout_.image_rows * layout_.pitch);
    const int row = Divide(in_image, layout_.by_pitch), column = in_image - row * layout_.pitch;
    if (image >= layout_.images || tile_.image + image >= g.batch || row >= layout_.rows ||
        tile_.y + row >= g.out_h || column >= layout_.cols || tile_.x + column >= g.out_w) {
      return -1;
    }
    const int64_t pixel = static_cast<int64_t>(tile_.y + row) * g.out_w + tile_.x + column;
    const int64_t first = (tile_.image + image) * g.out_h * g.out_w * g.out_c;
    return first + (args_.channels_first ? pixel : pixel * g.out_c);
  }

  __device__ void Write(int64_t to, const float (&out)[kOutputs]) const {
    constexpr int kRun = kOutputs % 4 == 0 ? 4 : 1;
    const int64_t pixels = args_.geometry.out_h * args_.geometry.out_w;
    const int64_t step = args_.channels_first ? pixels : 1;
    const bool f32 = args_.out_type == DType::kF32;
#pragma unroll
    for (int j = 0; j < kOutputs; j += kRun) {
      if (kRun > 1 && step == 1 && args_.geometry.out_c % 4 == 0 && outputs_[j] >= 0 &&
          outputs_[j] % 4 == 0 && outputs_[j + kRun - 1] == outputs_[j] + kRun - 1) {
        float run[kRun];
#pragma unroll
        for (int i = 0; i < kRun; ++i) run[i] = out[j + i];
        simt::StoreResult<kRun, T>(args_.out, f32, to + outputs_[j], run);
        continue;
      }
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        const float one[1] = {out[j + i]};
        if (outputs_[j + i] < 0) continue;
        simt::StoreResult<1, T>(args_.out, f32, to + outputs_[j + i] * step, one);
      }
    }
  }

  const PrunedArgs& args_;
  const WindowsLayout& layout_;
  const WindowsTile& tile_;
  int32_t outputs_[kOutputs];
  float bias_[kOutputs];
};

// Quads of a warp's outputs in one chunk, 16 bits an output.
template <int kOutputs>
struct alignas(2 * kOutputs) WindowCounts {
  uint16_t of[kOutputs];
};

template <typename T, int kOutputs, int kPositions>
__global__ void __launch_bounds__(WindowsMostWarps(kOutputs* kPositions) * 32, 1)
    PrunedWindows(const __grid_constant__ PrunedArgs args,
                  const __grid_constant__ WindowsLayout layout) {
  extern __shared__ float memory[];
  const int warp = threadIdx.x / 32, slab = blockIdx.x % layout.slabs;
  const int stream = slab * layout.output_warps + warp / layout.position_warps;
  const int first = warp % layout.position_warps * (32 * kPositions) + threadIdx.x % 32;
  const WindowsTile tile = WindowsTile::Of(layout, blockIdx.x / layout.slabs);
  const int buffer = layout.zeros + layout.chunk * layout.stride;
  const PanelLoad<T, (kOutputs * kPositions > 32 ? 8 : 16)> load(args, layout, tile, memory);
  WindowStream entries(args, __ldg(args.starts + stream));
  const auto* counts = reinterpret_cast<const WindowCounts<kOutputs>*>(args.extra) +
                       static_cast<int64_t>(stream) * layout.rounds * layout.chunks;
  const uint32_t limit = (buffer - 1) * 0x10001u;
#pragma unroll 1
  for (int round = 0; round < layout.rounds; ++round) {
    float sums[kOutputs][kPositions] = {};
#pragma unroll 1
    for (int chunk = round == 0 ? -1 : 0; chunk < layout.chunks; ++chunk) {
      WindowCounts<kOutputs> quads = {};
      if (chunk >= 0) quads = *counts++;
      if (round == 0) __syncthreads();
      const float* const windows = memory + (chunk & 1) * buffer + first;
      // Every other warp fills first, so that some multiply while others wait for the image.
#pragma unroll 1
      for (int turn = 0; turn < 2; ++turn) {
        if ((turn + warp) % 2 == 0) {
          load.Fill(chunk + 1);
          continue;
        }
#pragma unroll
        for (int j = 0; j < kOutputs; ++j) {
          MultiplyWindows<kPositions>(entries, quads.of[j], windows, limit, sums[j]);
        }
      }
    }
    const WindowStore<T, kOutputs, kPositions> store(
        args, layout, tile,
        args.rows + (static_cast<int64_t>(stream) * layout.rounds + round) * kOutputs);
    store.Store(sums, first);
  }
}

}  // namespace jaxsparse
