// What a worker of the forward masked convolution does.
#include <algorithm>
#include <cstring>
#include <thread>

#include "cpu/kernels/masked_conv/job.h"

namespace jaxsparse {
namespace {

constexpr int64_t kListed = 64;  // pixels listed at a time
constexpr int kDepthwiseVectors = 2;
constexpr int64_t kDepthwiseRows = 4;

}  // namespace

void MaskedConvJob::Run(int64_t worker) {
  const WorkerScratch scratch = ScratchOf(worker);
  for (int64_t item; items_->Next(&item);) {
    if (item < pack_items_) {
      panels_->Pack(item);
      panels_packed_.fetch_add(1, std::memory_order_release);
    } else if (item < pack_items_ + conv_items_) {
      WaitForPanels();
      RunChunk(item - pack_items_, scratch);
    } else {
      Fill(item - pack_items_ - conv_items_);
    }
  }
}

// Every panel has been claimed by a worker that is running, and packing waits for no other thread:
// this ends.
void MaskedConvJob::WaitForPanels() const {
  while (panels_packed_.load(std::memory_order_acquire) < pack_items_) std::this_thread::yield();
}

void MaskedConvJob::RunChunk(int64_t item, const WorkerScratch& scratch) const {
  const int64_t first_panel = item / chunks_ * range_;
  const int64_t last_panel = panels_ ? std::min(first_panel + range_, panels_->count()) : 1;
  int64_t first = item % chunks_ * chunk_;
  const int64_t last = std::min(first + chunk_, pixels_.count());
  Pixel listed[kListed];
  while (first < last) {
    const int64_t count = std::min(last - first, kListed / shape_.rows * shape_.rows);
    pixels_.List(first, count, listed);
    for (int64_t p = 0; p < count; p += shape_.rows) {
      const int64_t block = std::min<int64_t>(shape_.rows, count - p);
      if (panels_) {
        RunBlock(listed + p, block, first_panel, last_panel, scratch);
      } else {
        RunDepthwiseBlock(listed + p, block, scratch);
      }
    }
    first += count;
  }
}

// The smallest tile that holds `count` pixels.
int64_t MaskedConvJob::TileRows(int vectors, int64_t count) const {
  while (isa_.conv[vectors][count] == nullptr) ++count;
  return count;
}

void MaskedConvJob::RunBlock(const Pixel* pixels, int64_t count, int64_t first_panel,
                             int64_t last_panel, const WorkerScratch& scratch) const {
  const ConvGeometry& g = args_.geometry;
  const bool converts = args_.in_type != DType::kF32;
  const RowGather gather(args_, taps_, zeros_);
  const int64_t found = gather.RunOf(pixels, count), run = std::max<int64_t>(found, 1);
  const float** rows = converts ? scratch.gathered : scratch.rows;
  ConvTile tile;
  tile.row_block = kMaxTileRows;
  tile.rows = scratch.rows;
  tile.live = scratch.live;
  tile.live_count = found > 0 ? gather.LoadRuns(pixels, count, kMaxTileRows, rows, scratch.live)
                              : gather.Load(pixels, count, kMaxTileRows, rows, scratch.live);
  tile.depth = g.group_in() * run;
  alignas(64) float sums[kMaxTileRows * kMaxTileVectors * kMaxLanes];
  tile.sums = sums;
  Targets targets;
  FinishTile finish = FinishOf(pixels, count, sums, targets);
  int64_t converted = -1;
  for (int64_t p = first_panel; p < last_panel; ++p) {
    const WeightPanel panel = panels_->At(p);
    if (converts && converted != panel.group) {
      Convert(panel.group * g.group_in(), tile.depth, tile.live_count, scratch);
      converted = panel.group;
    }
    tile.x_offset = converts ? 0 : panel.group * g.group_in();
    tile.weights = panel.weights;
    tile.tap_stride = panel.tap_stride * run;
    tile.step = panel.step;
    tile.lanes = panel.width;
    isa_.conv[panel.vectors][TileRows(panel.vectors, count)](tile);
    finish.sums_stride = std::max(panel.vectors, 1) * isa_.lanes;
    finish.width = panel.width;
    finish.out_offset = panel.out;
    isa_.finish(finish);
  }
}

// Makes `slice` channels of the gathered rows, from `offset` on, float32.
void MaskedConvJob::Convert(int64_t offset, int64_t slice, int64_t live_count,
                            const WorkerScratch& scratch) const {
  for (int64_t i = 0; i < live_count; ++i) {
    for (int64_t r = 0; r < kMaxTileRows; ++r) {
      const int64_t at = scratch.live[i] * kMaxTileRows + r;
      scratch.rows[at] = zeros_;
      if (scratch.gathered[at] == zeros_) continue;
      float* row = scratch.converted + at * slice;
      isa_.to_f32(args_.in_type, ElementAt(scratch.gathered[at], offset, args_.in_type), slice,
                  row);
      scratch.rows[at] = row;
    }
  }
}

void MaskedConvJob::RunDepthwiseBlock(const Pixel* pixels, int64_t count,
                                      const WorkerScratch& scratch) const {
  const ConvGeometry& g = args_.geometry;
  const bool converts = args_.in_type != DType::kF32;
  const RowGather gather(args_, taps_, zeros_);
  ConvTile tile;
  tile.row_block = kMaxTileRows;
  tile.live = scratch.live;
  tile.live_count = gather.Load(pixels, count, kMaxTileRows,
                                converts ? scratch.gathered : scratch.rows, scratch.live);
  if (converts) Convert(0, g.in_c, tile.live_count, scratch);
  tile.depth = tile.step = 1;
  tile.tap_stride = g.in_c;
  alignas(64) float sums[kDepthwiseRows * kDepthwiseVectors * kMaxLanes];
  tile.sums = sums;
  for (int64_t first = 0; first < count;) {
    const int64_t rows = count - first >= kDepthwiseRows ? kDepthwiseRows : 1;
    tile.rows = scratch.rows + first;
    Targets targets;
    FinishTile finish = FinishOf(pixels + first, rows, sums, targets);
    for (int64_t c = 0; c < g.in_c;) {
      const int64_t vectors = std::min<int64_t>((g.in_c - c) / isa_.lanes, kDepthwiseVectors);
      tile.lanes = vectors > 0 ? vectors * isa_.lanes : g.in_c - c;
      const int kind = vectors == kDepthwiseVectors ? kDepthwiseVectors : static_cast<int>(vectors);
      tile.x_offset = c;
      tile.weights = depthwise_weights_ + c;
      isa_.depthwise[kind][rows](tile);
      finish.sums_stride = std::max(kind, 1) * isa_.lanes;
      finish.width = tile.lanes;
      finish.out_offset = c;
      isa_.finish(finish);
      c += tile.lanes;
    }
    first += rows;
  }
}

// All but the columns: those of a panel are set for each.
FinishTile MaskedConvJob::FinishOf(const Pixel* pixels, int64_t count, const float* sums,
                                   Targets& targets) const {
  const ConvGeometry& g = args_.geometry;
  const int64_t pixel_bytes = g.out_c * SizeOf(args_.out_type);
  for (int64_t r = 0; r < count; ++r) {
    const int64_t pixel = (pixels[r].batch * g.out_h + pixels[r].y) * g.out_w + pixels[r].x;
    targets.out[r] = static_cast<char*>(args_.out) + pixel * pixel_bytes;
    if (args_.residual == nullptr) continue;
    targets.residual[r] = static_cast<const char*>(args_.residual) + pixel * pixel_bytes;
  }
  FinishTile tile;
  tile.sums = sums;
  tile.rows = count;
  tile.bias = args_.bias;
  tile.pixels = targets.out;
  tile.residual = args_.residual ? targets.residual : nullptr;
  tile.out_type = args_.out_type;
  tile.activation = args_.activation;
  return tile;
}

// Clears what no tile computes, run by run.
void MaskedConvJob::Fill(int64_t item) const {
  const ConvGeometry& g = args_.geometry;
  const int64_t pixel_bytes = g.out_c * SizeOf(args_.out_type);
  const int64_t last_row = std::min((item + 1) * fill_rows_, pixels_.rows());
  for (int64_t row = item * fill_rows_; row < last_row; ++row) {
    const uint32_t* bits = pixels_.row_bits(row);
    char* out = static_cast<char*>(args_.out) + row * g.out_w * pixel_bytes;
    const auto active = [&](int64_t x) { return (bits[x / 32] >> (x % 32) & 1u) != 0; };
    for (int64_t x = 0; x < g.out_w;) {
      if (active(x)) {
        ++x;
        continue;
      }
      const int64_t start = x;
      while (x < g.out_w && !active(x)) ++x;
      std::memset(out + start * pixel_bytes, 0, static_cast<size_t>((x - start) * pixel_bytes));
    }
  }
}

}  // namespace jaxsparse
