#include "cpu/kernels/masked_conv/dkernel_job.h"

#include <algorithm>
#include <cstring>

namespace jaxsparse {
namespace {

constexpr int64_t kMaxWorkers = 64;
constexpr int64_t kItemsPerWorker = 8;
constexpr int64_t kMinChannels = 8;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

int64_t MaskedConvDkernelJob::ScratchBytes(const ConvGeometry& g, DType x_type, DType gy_type,
                                           int64_t workers) {
  ScratchCarver carver(nullptr);
  ActivePixels pixels(g, carver);
  TapTable taps(g, carver);
  ScratchCarver worker(nullptr);
  worker.Take<float>(x_type == DType::kF32 ? 0 : kChunk * kMaxChannels);
  worker.Take<float>(gy_type == DType::kF32 ? 0 : kChunk * std::max(g.group_out(), kMaxChannels));
  return (carver.used() + worker.used() * workers + ScratchCarver::kAlign).or_max();
}

MaskedConvDkernelJob::MaskedConvDkernelJob(const MaskedConvDkernelArgs& args, int64_t pool_workers)
    : args_(args),
      isa_(MaskedConvIsa()),
      carver_(args.scratch),
      pixels_(args_.geometry, carver_),
      taps_(args_.geometry, carver_) {
  const ConvGeometry& g = args_.geometry;
  const int64_t fixed = ScratchBytes(g, args_.x_type, args_.gy_type, 0);
  const int64_t each = ScratchBytes(g, args_.x_type, args_.gy_type, 1) - fixed;
  if (args_.scratch_bytes < fixed + each) return;
  const int64_t room = each == 0 ? kMaxWorkers : (args_.scratch_bytes - fixed) / each;
  shape_ = TileShapeOf(args_.variant, isa_.wide_file, CeilDiv(g.group_out(), isa_.lanes));
  pixels_.Build(args_.tiles);
  taps_.Build(g);
  groups_ = g.depthwise() ? 1 : g.groups;
  group_in_ = g.depthwise() ? g.in_c : g.group_in();
  workers_ = std::min({pool_workers, kMaxWorkers, room});
  // Few enough channels that every worker finds items, as many as that leaves: each item reads all
  // of gy.
  const int64_t wanted =
      CeilDiv(kItemsPerWorker * workers_, std::max<int64_t>(groups_ * g.taps(), 1));
  const int64_t even = CeilDiv(CeilDiv(group_in_, std::max<int64_t>(wanted, 1)), kMinChannels);
  channels_ = std::clamp(even * kMinChannels, kMinChannels, kMaxChannels);
  slices_ = CeilDiv(group_in_, channels_);
  const int64_t items = groups_ * g.taps() * slices_;
  workers_ = std::clamp<int64_t>(items, 1, workers_);
  items_.emplace(items);
}

MaskedConvDkernelJob::Slice MaskedConvDkernelJob::SliceOf(int64_t item) const {
  Slice slice;
  slice.channel = item % slices_ * channels_;
  slice.channels = std::min(channels_, group_in_ - slice.channel);
  slice.tap = item / slices_ % args_.geometry.taps();
  slice.group = item / slices_ / args_.geometry.taps();
  return slice;
}

void MaskedConvDkernelJob::Run(int64_t worker) {
  const ConvGeometry& g = args_.geometry;
  const int64_t each = ScratchBytes(g, args_.x_type, args_.gy_type, 1) -
                       ScratchBytes(g, args_.x_type, args_.gy_type, 0);
  ScratchCarver carver = carver_;
  float* converted = carver.Take<float>(0) + worker * (each / static_cast<int64_t>(sizeof(float)));
  for (int64_t item; items_->Next(&item);) RunSlice(SliceOf(item), converted);
}

// Outputs that a slice's rows of dkernel have.
int64_t MaskedConvDkernelJob::OutputsOf(const Slice& slice) const {
  return args_.geometry.depthwise() ? slice.channels : args_.geometry.group_out();
}

float* MaskedConvDkernelJob::DkernelAt(const Slice& slice) const {
  const ConvGeometry& g = args_.geometry;
  if (g.depthwise()) return args_.dkernel + slice.tap * g.out_c + slice.channel;
  return args_.dkernel + (slice.tap * g.group_in() + slice.channel) * g.out_c +
         slice.group * g.group_out();
}

void MaskedConvDkernelJob::RunSlice(const Slice& slice, float* converted) const {
  const ConvGeometry& g = args_.geometry;
  const int64_t rows_of_dkernel = g.depthwise() ? 1 : slice.channels;
  for (int64_t c = 0; c < rows_of_dkernel; ++c) {
    std::memset(DkernelAt(slice) + c * g.out_c, 0,
                static_cast<size_t>(OutputsOf(slice)) * sizeof(float));
  }
  Pixel pixels[kChunk];
  Rows rows;
  for (int64_t first = 0; first < pixels_.count(); first += kChunk) {
    const int64_t count = std::min(kChunk, pixels_.count() - first);
    pixels_.List(first, count, pixels);
    LoadRows(slice, pixels, count, converted, &rows);
    if (g.depthwise()) {
      MultiplyDepthwise(slice, rows);
    } else {
      Multiply(slice, rows);
    }
  }
}

// The rows of the pixels that have this tap.
void MaskedConvDkernelJob::LoadRows(const Slice& slice, const Pixel* pixels, int64_t count,
                                    float* converted, Rows* rows) const {
  const ConvGeometry& g = args_.geometry;
  const int64_t ky = slice.tap / g.kernel_w, kx = slice.tap % g.kernel_w;
  const int64_t x_channel = slice.group * group_in_ + slice.channel;
  const int64_t gy_channel = g.depthwise() ? slice.channel : slice.group * g.group_out();
  const int64_t outputs = OutputsOf(slice);
  float* x_rows = converted;
  float* gy_rows = converted + (args_.x_type == DType::kF32 ? 0 : kChunk * kMaxChannels);
  int64_t n = 0;
  for (int64_t p = 0; p < count; ++p) {
    const Pixel& pixel = pixels[p];
    const int64_t y = taps_.rows(pixel.y)[ky], x = taps_.cols(pixel.x)[kx];
    if (y < 0 || x < 0) continue;
    const int64_t in = (pixel.batch * g.in_h + y) * g.in_w + x;
    const int64_t out = (pixel.batch * g.out_h + pixel.y) * g.out_w + pixel.x;
    const void* x_row = ElementAt(args_.x, in * g.in_c + x_channel, args_.x_type);
    const void* gy_row = ElementAt(args_.gy, out * g.out_c + gy_channel, args_.gy_type);
    if (args_.x_type != DType::kF32) {
      isa_.to_f32(args_.x_type, x_row, slice.channels, x_rows + n * kMaxChannels);
      x_row = x_rows + n * kMaxChannels;
    }
    if (args_.gy_type != DType::kF32) {
      isa_.to_f32(args_.gy_type, gy_row, outputs, gy_rows + n * outputs);
      gy_row = gy_rows + n * outputs;
    }
    rows->x[n] = static_cast<const float*>(x_row);
    rows->gy[n] = static_cast<const float*>(gy_row);
    ++n;
  }
  rows->count = n;
}

// Rows of the next tile when `rest` channels are left: the last two tiles share evenly, for small
// tiles are slow.
int64_t MaskedConvDkernelJob::BlockRows(int vectors, int64_t rest) const {
  int64_t block = std::min<int64_t>(rest, shape_.rows);
  if (rest > shape_.rows && rest < 2 * shape_.rows) block = (rest + 1) / 2;
  while (isa_.dkernel[vectors][block] == nullptr) --block;
  return block;
}

void MaskedConvDkernelJob::Multiply(const Slice& slice, const Rows& rows) const {
  const ConvGeometry& g = args_.geometry;
  DkernelTile tile = {};
  tile.x = rows.x;
  tile.gy = rows.gy;
  tile.count = rows.count;
  tile.stride = g.out_c;
  for (int64_t o = 0; o < g.group_out();) {
    const int64_t rest = g.group_out() - o;
    const int vectors = static_cast<int>(std::min<int64_t>(rest / isa_.lanes, shape_.vectors));
    tile.lanes = vectors > 0 ? vectors * isa_.lanes : rest;
    tile.gy_offset = o;
    for (int64_t c = 0; c < slice.channels;) {
      const int64_t block = BlockRows(vectors, slice.channels - c);
      tile.x_offset = c;
      tile.dkernel = DkernelAt(slice) + c * g.out_c + o;
      isa_.dkernel[vectors][block](tile);
      c += block;
    }
    o += tile.lanes;
  }
}

void MaskedConvDkernelJob::MultiplyDepthwise(const Slice& slice, const Rows& rows) const {
  DkernelTile tile = {};
  tile.x = rows.x;
  tile.gy = rows.gy;
  tile.count = rows.count;
  for (int64_t c = 0; c < slice.channels;) {
    const int64_t rest = slice.channels - c;
    int vectors = static_cast<int>(std::min<int64_t>(rest / isa_.lanes, kMaxTileVectors));
    while (isa_.depthwise_dkernel[vectors] == nullptr) --vectors;
    tile.lanes = vectors > 0 ? vectors * isa_.lanes : rest;
    tile.x_offset = tile.gy_offset = c;
    tile.dkernel = DkernelAt(slice) + c;
    isa_.depthwise_dkernel[vectors](tile);
    c += tile.lanes;
  }
}

}  // namespace jaxsparse
