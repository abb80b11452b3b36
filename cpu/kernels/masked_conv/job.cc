#include "cpu/kernels/masked_conv/job.h"

#include <algorithm>
#include <cstring>

namespace jaxsparse {
namespace {

constexpr int64_t kMaxWorkers = 64;
constexpr int64_t kRangeBytes = 512 << 10;  // weights of a range: part of the second-level cache
constexpr int64_t kFillBytes = 256 << 10;   // output cleared by one item
constexpr int64_t kChunksPerWorker = 8;
constexpr int64_t kBlocksPerChunk = 4;
constexpr int64_t kBlocksPerRangeChunk = 16;

// Weights beyond these bytes, read in place, crowd each other out of cache. A copy pays from so
// many pixels on, and from many more where they do not.
constexpr int64_t kLargeBytes = 1 << 20;
constexpr int64_t kPackPixelsLarge = 160;
constexpr int64_t kPackPixelsSmall = 1024;
constexpr ConvTileShape kFewPixelsLargeWeights = {12, 2};

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Channels converted at a time: a group's, or all where a channel is a group.
int64_t SliceChannels(const ConvGeometry& g) { return g.depthwise() ? g.in_c : g.group_in(); }

}  // namespace

MaskedConvJob::WorkerScratch MaskedConvJob::TakeWorker(const ConvGeometry& g, DType in_type,
                                                       ScratchCarver& carver) {
  const Checked addresses = Checked(g.taps()) * kMaxTileRows;
  WorkerScratch scratch;
  scratch.rows = carver.Take<const float*>(addresses);
  scratch.live = carver.Take<int32_t>(g.taps());
  scratch.gathered = carver.Take<const float*>(in_type == DType::kF32 ? Checked(0) : addresses);
  scratch.converted =
      carver.Take<float>(in_type == DType::kF32 ? Checked(0) : addresses * SliceChannels(g));
  return scratch;
}

int64_t MaskedConvJob::ScratchBytes(const ConvGeometry& g, DType in_type, int64_t workers) {
  ScratchCarver carver(nullptr);
  ActivePixels pixels(g, carver);
  TapTable taps(g, carver);
  carver.Take<float>(g.in_c);
  carver.Take<float>(WeightPanels::PackedFloats(g));
  ScratchCarver worker(nullptr);
  TakeWorker(g, in_type, worker);
  return (carver.used() + worker.used() * workers + ScratchCarver::kAlign).or_max();
}

MaskedConvJob::MaskedConvJob(const MaskedConvArgs& args, int64_t pool_workers)
    : args_(args),
      isa_(MaskedConvIsa()),
      carver_(args.scratch),
      pixels_(args_.geometry, carver_),
      taps_(args_.geometry, carver_),
      zeros_(carver_.Take<float>(args_.geometry.in_c)) {
  const ConvGeometry& g = args_.geometry;
  const int64_t fixed = ScratchBytes(g, args_.in_type, 0);
  const int64_t each = ScratchBytes(g, args_.in_type, 1) - fixed;
  const int64_t room = each == 0 ? kMaxWorkers : (args_.scratch_bytes - fixed) / each;
  workers_ = std::min({pool_workers, kMaxWorkers, room});
  if (args_.scratch_bytes < fixed || workers_ < 1) {
    workers_ = 0;
    return;
  }
  std::memset(zeros_, 0, static_cast<size_t>(g.in_c) * sizeof(float));
  pixels_.Build(args_.tiles);
  taps_.Build(g);
  PrepareWeights();
  Partition();
}

MaskedConvJob::WorkerScratch MaskedConvJob::ScratchOf(int64_t worker) const {
  ScratchCarver carver = carver_;
  WorkerScratch scratch = {};
  for (int64_t w = 0; w <= worker; ++w) {
    scratch = TakeWorker(args_.geometry, args_.in_type, carver);
  }
  return scratch;
}

void MaskedConvJob::PrepareWeights() {
  const ConvGeometry& g = args_.geometry;
  const int64_t vectors = CeilDiv(g.group_out(), isa_.lanes);
  shape_ = TileShapeOf(args_.variant, isa_.wide_file, vectors);
  if (g.depthwise()) {
    depthwise_weights_ = static_cast<const float*>(args_.kernel);
    if (args_.in_type != DType::kF32) {
      float* weights = carver_.Take<float>(WeightPanels::PackedFloats(g));
      isa_.to_f32(args_.in_type, args_.kernel, g.taps() * g.in_c, weights);
      depthwise_weights_ = weights;
    }
    return;
  }
  const ConvWeights wanted = kMaskedConvVariants[args_.variant].weights;
  const bool large = g.taps() * g.group_in() * g.out_c * 4 > kLargeBytes;
  const bool pays = pixels_.count() >= (large ? kPackPixelsLarge : kPackPixelsSmall);
  const bool packed = args_.in_type != DType::kF32 || wanted == ConvWeights::kPacked ||
                      (wanted == ConvWeights::kAuto && pays && vectors > shape_.vectors);
  if (args_.variant == kAutoVariant && large && !packed && isa_.wide_file && vectors > 1) {
    shape_ = kFewPixelsLargeWeights;
  }
  panels_.emplace(g, args_.in_type, args_.kernel, isa_, shape_.vectors,
                  packed && pixels_.count() > 0, carver_);
}

// Items, in this order: panels to pack, chunks of pixels x ranges of panels (all chunks of a range
// together, so that its weights stay in cache), rows to clear.
void MaskedConvJob::Partition() {
  const ConvGeometry& g = args_.geometry;
  const int64_t count = pixels_.count();
  const int64_t panels = panels_ ? panels_->count() : 1;
  const int64_t panel_bytes = panels_ ? std::max<int64_t>(panels_->bytes(), 1) : kRangeBytes;
  range_ = std::clamp<int64_t>(kRangeBytes / panel_bytes, 1, std::max<int64_t>(panels, 1));
  ranges_ = CeilDiv(panels, range_);
  // Where the ranges alone keep the workers busy, a chunk is long: it reads its weights once.
  const bool many = ranges_ >= 2 * workers_;
  const int64_t target =
      many ? 1 : std::max<int64_t>(kChunksPerWorker * workers_ / std::max<int64_t>(ranges_, 1), 1);
  const int64_t limit = many ? kBlocksPerRangeChunk : kBlocksPerChunk;
  const int64_t blocks = CeilDiv(count, shape_.rows);
  chunk_ = shape_.rows * std::clamp<int64_t>(blocks / target, 1, limit);
  chunks_ = CeilDiv(count, chunk_);
  pack_items_ = panels_ && panels_->packed() ? panels : 0;
  conv_items_ = chunks_ * ranges_;
  const int64_t row_bytes = g.out_w * g.out_c * SizeOf(args_.out_type);
  fill_rows_ = std::max<int64_t>(kFillBytes / std::max<int64_t>(row_bytes, 1), 1);
  fill_items_ = args_.zero_fill && row_bytes > 0 ? CeilDiv(pixels_.rows(), fill_rows_) : 0;
  const int64_t items = pack_items_ + conv_items_ + fill_items_;
  workers_ = std::clamp<int64_t>(items, 1, workers_);
  items_.emplace(items);
}

}  // namespace jaxsparse
