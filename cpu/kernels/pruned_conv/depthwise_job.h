// A depthwise convolution with a frozen kernel: the work of one call, shared by the workers of a
// pool.
//
// An item is some rows of the result. The pixels of a row whose windows lie in the image in every
// column are one call of the kernel (cpu/tile/pruned/depthwise.h); those at its ends are a call
// each, with the taps that lie in the image.
#pragma once

#include <cstdint>
#include <optional>

#include "contracts/enums.gen.h"
#include "cpu/core/geometry.h"
#include "cpu/core/scratch.h"
#include "cpu/core/work_ends.h"
#include "cpu/tile/pruned/isa.h"

namespace jaxsparse {

struct PrunedDepthwiseArgs {
  ConvGeometry geometry;  // in_c == out_c, lhs_dilation 1
  DType in_type, out_type;
  Activation activation;
  int64_t rows;            // of an item
  int64_t taps;            // that some channel keeps
  const void* x;           // NHWC
  const float* values;     // [taps, out_c]
  const uint16_t* tap_of;  // [taps, out_c]: ky * kernel_w + kx; the first of each is read
  const float* bias;       // nullptr: none
  void* out;               // NHWC
  void* scratch;
  int64_t scratch_bytes;
};

class PrunedDepthwiseJob {
 public:
  PrunedDepthwiseJob(const PrunedDepthwiseArgs& args, int64_t pool_workers);
  PrunedDepthwiseJob(const PrunedDepthwiseJob&) = delete;
  // 0 when the scratch is too small to run at all.
  int64_t workers() const { return workers_; }
  void Run(int64_t worker);

 private:
  struct Worker {
    int64_t* offsets;  // [taps]
    const float** weights;
  };
  Worker Take(ScratchCarver& carver) const;
  void RunRow(int64_t image, int64_t y, const Worker& worker) const;
  void RunPixels(int64_t image, int64_t y, int64_t x, int64_t count, const Worker& worker) const;

  PrunedDepthwiseArgs args_;
  const PrunedIsa& isa_;
  int64_t inner_first_ = 0, inner_last_ = 0;  // columns whose windows lie in the image
  int64_t tiles_ = 0, workers_ = 0;
  std::optional<WorkEnds> items_;
};

}  // namespace jaxsparse
