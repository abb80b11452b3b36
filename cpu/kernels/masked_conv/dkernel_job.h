// Gradient of the masked convolution with respect to its kernel: dkernel[tap] = sum over active
// pixels of x[tap]^T gy.
//
// - Floor: 2 * active pixels * taps * C/groups * O FLOPs; the active rows of x and gy once per
//   item.
// - Tile: up to 12 input channels x a panel of output channels in registers, summed over a chunk
//   of pixels. An item owns a slice of dkernel (a tap, a range of input channels) and visits every
//   pixel in raster order: no partial sums, no atomics, the same result for any number of workers.
// - Pipeline: list pixels -> addresses (-> float32) -> multiply, chunk by chunk.
// - Predicted: below the forward's rate, for both operands stream. Measured like it: 107 / 147 /
//   147 / 158 GFLOP/s.
#pragma once

#include <cstdint>
#include <optional>

#include "cpu/core/scratch.h"
#include "cpu/core/work_counter.h"
#include "cpu/kernels/masked_conv/pixels.h"
#include "cpu/kernels/masked_conv/variants.h"
#include "cpu/tile/conv/isa.h"

namespace jaxsparse {

class MaskedConvDkernelJob {
 public:
  MaskedConvDkernelJob(const MaskedConvDkernelArgs& args, int64_t pool_workers);

  // Workspace for `workers` workers; 1 is enough to run.
  static int64_t ScratchBytes(const ConvGeometry& geometry, DType x_type, DType gy_type,
                              int64_t workers);

  // 0 when the scratch is too small to run at all.
  int64_t workers() const { return workers_; }
  void Run(int64_t worker);

 private:
  static constexpr int64_t kChunk = 128;        // pixels summed at a time
  static constexpr int64_t kMaxChannels = 128;  // input channels of an item

  struct Slice {
    int64_t group, tap, channel, channels;  // channel: first input channel within the group
  };

  // A chunk's rows of x and gy, as float32, each starting at the slice's first channel.
  struct Rows {
    const float* x[kChunk];
    const float* gy[kChunk];
    int64_t count;
  };

  Slice SliceOf(int64_t item) const;
  void RunSlice(const Slice& slice, float* converted) const;
  void LoadRows(const Slice& slice, const Pixel* pixels, int64_t count, float* converted,
                Rows* rows) const;
  int64_t BlockRows(int vectors, int64_t rest) const;
  void Multiply(const Slice& slice, const Rows& rows) const;
  void MultiplyDepthwise(const Slice& slice, const Rows& rows) const;
  float* DkernelAt(const Slice& slice) const;
  int64_t OutputsOf(const Slice& slice) const;

  MaskedConvDkernelArgs args_;
  const ConvIsa& isa_;
  ScratchCarver carver_;
  ActivePixels pixels_;
  TapTable taps_;
  ConvTileShape shape_;
  int64_t groups_, group_in_;  // depthwise counts as one group
  int64_t channels_, slices_;  // input channels of an item, items of a group and tap
  int64_t workers_ = 0;
  std::optional<WorkCounter> items_;
};

}  // namespace jaxsparse
