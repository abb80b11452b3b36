// A convolution with frozen weights, data-driven: an entry is a number and where the window of its
// tap begins.
//
// Floor: every product of a kept weight reads one float of the image from shared memory: 128 bytes
// a cycle an SM are 32 products, a quarter of the FMA rate; 132 SMs at 1.755 GHz make 7.4e12
// products a second. Beside it the image moves to each block that serves other outputs of it.
//
// A block serves a tile of output positions (rows x columns of one image, or whole small images)
// and a slab of output channels. The tile's input lies in shared memory channel by channel, padded
// with zeros, so that all positions of a tap are one contiguous run (panel.cuh): lanes
// are neighbouring positions without bank conflicts, and padding costs the products nothing.
// The few places between the rows of a tile are computed and not stored. A warp owns kOutputs
// outputs (dealt out by size) at 32 * kPositions positions, all of them accumulators, and reads its
// entries as one stream of quads, from a ring in shared memory, one ahead. Two buffers: the next
// chunk of channels comes by `cp.async` while the warps multiply the one before.
//
// Predicted for 128 -> 128 channels, 3x3, 28x28, batch 32, 90 %, on an H200: 50 us if every place
// of a tile were stored, 59 us at the 196 of 224 places that are. Measured 77.3 us a launch; by 95
// %, 47.9 us, a quad takes 4 * kPositions cycles and nothing more. The other 18 us are a launch,
// the image, which arrives before the first product, and the stores, after the last.
#pragma once

#include <cstdint>

#include "cuda/core/activation.cuh"
#include "cuda/core/async_copy.cuh"
#include "cuda/core/element.cuh"
#include "cuda/core/mbarrier.cuh"
#include "cuda/kernels/pruned_conv/launch.h"
#include "cuda/kernels/pruned_conv/panel.cuh"

namespace jaxsparse {

// Four entries.
struct WindowQuad {
  float4 value;
  uint2 offset;  // floats into the buffer, 16 bits each
};

// The entries of a warp, in a ring of its own that `cp.async` fills a stage ahead.
class WindowStream {
 public:
  // Starts the first stage on its way.
  __device__ WindowStream(const PrunedArgs& args, int32_t first, uint8_t* ring)
      : ring_(ring),
        values_(static_cast<const float4*>(args.values)),
        places_(static_cast<const uint2*>(args.indices)),
        at_(static_cast<uint32_t>(max(first, 0))),
        last_(static_cast<uint32_t>(args.entries / 4 - 1)) {
    Load(0);
  }

  __device__ __forceinline__ void Begin() { next_ = Read(); }

  __device__ __forceinline__ WindowQuad Next() {
    const WindowQuad quad = next_;
    next_ = Read();
    return quad;
  }

 private:
  __device__ __forceinline__ WindowQuad Read() {
    const uint32_t quad = read_ % kWindowStage, stage = read_ / kWindowStage % 2;
    if (quad == 0) {
      ptx::WaitForCopies();
      __syncwarp();  // the stage lies there, and every lane has read the one before
      Load(stage ^ 1);
    }
    ++read_;
    const uint8_t* const from = ring_ + stage * kWindowStageBytes;
    return {reinterpret_cast<const float4*>(from)[quad],
            reinterpret_cast<const uint2*>(from + kWindowStage * 16)[quad]};
  }

  // The next quads: half of the lanes bring numbers, half places.
  __device__ __forceinline__ void Load(uint32_t stage) {
    const uint32_t lane = threadIdx.x % 32, quad = lane % kWindowStage;
    const uint32_t i = min(at_ + quad, last_);
    const uint32_t to = ptx::SharedAddress(ring_) + stage * kWindowStageBytes;
    if (lane < kWindowStage) {
      ptx::CopyOrZero16(to + quad * 16, values_ + i, 16);
    } else {
      CopyOrZero<8>(to + kWindowStage * 16 + quad * 8, places_ + i, true);
    }
    at_ += kWindowStage;
  }

  uint8_t* ring_;
  const float4* values_;
  const uint2* places_;
  uint32_t at_, last_, read_ = 0;
  WindowQuad next_;
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
  WindowStream entries(args, __ldg(args.starts + stream),
                       reinterpret_cast<uint8_t*>(memory) + layout.rings + warp * kWindowRingBytes);
  const PanelLoad<T, (kOutputs * kPositions > 32 ? 8 : 16)> load(args, layout, tile, memory);
  const auto* counts = reinterpret_cast<const WindowCounts<kOutputs>*>(args.extra) +
                       static_cast<int64_t>(stream) * layout.rounds * layout.chunks;
  const uint32_t limit = (buffer - 1) * 0x10001u;
  __syncthreads();  // the table of places
  load.Fill(0);
  entries.Begin();
#pragma unroll 1
  for (int round = 0; round < layout.rounds; ++round) {
    float sums[kOutputs][kPositions] = {};
#pragma unroll 1
    for (int chunk = 0; chunk < layout.chunks; ++chunk) {
      const WindowCounts<kOutputs> quads = *counts++;
      if (round == 0) {
        ptx::WaitForCopies();
        __syncthreads();  // the chunk lies there, and every warp has read the one before
      }
      const float* const windows = memory + (chunk & 1) * buffer + first;
#pragma unroll 1
      for (int turn = 0; turn < 2; ++turn) {
        if (load.Turn(warp) == turn) {
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
