#include "cpu/kernels/pruned_conv/depthwise_job.h"

#include <algorithm>

namespace jaxsparse {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b > 0 ? 1 : 0); }

}  // namespace

PrunedDepthwiseJob::PrunedDepthwiseJob(const PrunedDepthwiseArgs& args, int64_t pool_workers)
    : args_(args), isa_(PrunedIsaInUse()) {
  const ConvGeometry& g = args_.geometry;
  if (g.taps() == 0) args_.taps = 0;
  const int64_t reach = (g.kernel_w - 1) * g.dilation_w;
  inner_first_ = std::clamp<int64_t>(CeilDiv(g.pad_left, g.stride_w), 0, g.out_w);
  inner_last_ = CeilDiv(g.in_w - reach + g.pad_left, g.stride_w);
  inner_last_ = std::clamp<int64_t>(inner_last_, inner_first_, g.out_w);
  tiles_ = CeilDiv(g.out_h, args_.rows);
  const Checked items = Checked(g.batch) * tiles_;
  if (!items.valid()) return;
  ScratchCarver carver(args_.scratch);
  Take(carver);
  const int64_t least = carver.used().or_max();
  if (args_.scratch_bytes < least) return;
  const int64_t room = 1 + (args_.scratch_bytes - least) / (least + ScratchCarver::kAlign);
  items_.emplace(items.or_max());
  workers_ = std::clamp<int64_t>(std::min(room, items.or_max()), 1, pool_workers);
}

PrunedDepthwiseJob::Worker PrunedDepthwiseJob::Take(ScratchCarver& carver) const {
  int64_t* offsets = carver.Take<int64_t>(args_.taps);
  return {offsets, carver.Take<const float*>(args_.taps)};
}

void PrunedDepthwiseJob::Run(int64_t index) {
  ScratchCarver carver(args_.scratch);
  for (int64_t w = 0; w < index; ++w) Take(carver);
  const Worker worker = Take(carver);
  for (int64_t item; items_->Next(index, &item);) {
    const int64_t first = item % tiles_ * args_.rows;
    const int64_t last = first + std::min(args_.rows, args_.geometry.out_h - first);
    for (int64_t y = first; y < last; ++y) RunRow(item / tiles_, y, worker);
  }
}

void PrunedDepthwiseJob::RunRow(int64_t image, int64_t y, const Worker& worker) const {
  for (int64_t x = 0; x < inner_first_; ++x) RunPixels(image, y, x, 1, worker);
  if (inner_first_ < inner_last_) {
    RunPixels(image, y, inner_first_, inner_last_ - inner_first_, worker);
  }
  for (int64_t x = inner_last_; x < args_.geometry.out_w; ++x) RunPixels(image, y, x, 1, worker);
}

// Uses, for all of the pixels, the taps that lie in the image for the first of them.
void PrunedDepthwiseJob::RunPixels(int64_t image, int64_t y, int64_t x, int64_t count,
                                   const Worker& worker) const {
  const ConvGeometry& g = args_.geometry;
  const int64_t pixel = g.in_c * SizeOf(args_.in_type);
  PrunedDepthwise job = {};
  for (int64_t t = 0; t < args_.taps; ++t) {
    const int64_t tap = std::min<int64_t>(args_.tap_of[t * g.out_c], g.taps() - 1);
    const int64_t row = y * g.stride_h + tap / g.kernel_w * g.dilation_h - g.pad_top;
    const int64_t column = x * g.stride_w + tap % g.kernel_w * g.dilation_w - g.pad_left;
    if (row < 0 || row >= g.in_h || column < 0 || column >= g.in_w) continue;
    worker.offsets[job.taps] = (row * g.in_w + column) * pixel;
    worker.weights[job.taps++] = args_.values + t * g.out_c;
  }
  job.x = static_cast<const char*>(args_.x) + image * g.in_h * g.in_w * pixel;
  job.offsets = worker.offsets;
  job.weights = worker.weights;
  job.step = g.stride_w * pixel;
  job.pixels = count;
  job.channels = g.out_c;
  job.in_type = args_.in_type;
  job.out_type = args_.out_type;
  job.activation = args_.activation;
  job.bias = args_.bias;
  job.out = static_cast<char*>(args_.out) +
            ((image * g.out_h + y) * g.out_w + x) * g.out_c * SizeOf(args_.out_type);
  isa_.depthwise(job);
}

}  // namespace jaxsparse
