#include "cpu/kernels/pruned_job.h"

#include <algorithm>

#include "cpu/kernels/masked_conv_isa.h"

namespace jaxsparse {

PrunedJob::PrunedJob(const PrunedArgs& args, int64_t pool_workers)
    : args_(args), isa_(PrunedIsaInUse()) {
  const ConvGeometry& g = args_.geometry;
  const int64_t items =
      g.batch * args_.row_tiles() * args_.column_tiles() * (g.out_c > 0 ? args_.parts : 0);
  items_.emplace(items);
  // No part has more units than this: a part's rows are whole units.
  for (int64_t p = 0; p < args_.parts; ++p) {
    const int32_t* bounds = args_.rows + g.out_c;
    const int64_t rows = std::clamp<int64_t>(bounds[p + 1] - bounds[p], 0, g.out_c);
    most_units_ = std::max(most_units_, rows);
  }
  most_units_ = std::min((most_units_ + kPrunedLanes - 1) / kPrunedLanes + 1, out_units());
  ScratchCarver carver(args_.scratch);
  Take(carver);
  const int64_t least = carver.used();
  if (args_.scratch_bytes < least) return;
  const int64_t room = 1 + (args_.scratch_bytes - least) / (least + ScratchCarver::kAlign);
  workers_ = std::clamp<int64_t>(std::min(room, items), 1, pool_workers);
}

PrunedJob::Worker PrunedJob::Take(ScratchCarver& carver) const {
  Worker worker = {PrunedPanel(args_, isa_), nullptr, nullptr, nullptr, nullptr};
  worker.panel.Take(carver);
  worker.slots = carver.Take<int32_t>(args_.geometry.out_c);
  worker.units = carver.Take<int32_t>(most_units_);
  worker.found = carver.Take<int32_t>(out_units());
  worker.sums = carver.Take<float>(most_units_ * kPrunedLanes * sums_stride());
  return worker;
}

void PrunedJob::Run(int64_t index) {
  ScratchCarver carver(args_.scratch);
  for (int64_t w = 0; w < index; ++w) Take(carver);
  Worker worker = Take(carver);
  worker.panel.Clear();
  for (int64_t item; items_->Next(&item);) RunItem(item, worker);
}

// Gives every row of a part a place in the sums: rows of one unit side by side. A row that does not
// exist, or that finds no place, gets none.
PrunedJob::Part PrunedJob::PartOf(int64_t part, int32_t* slots, int32_t* units,
                                  int32_t* found) const {
  const int64_t outputs = args_.geometry.out_c;
  const int32_t* bounds = args_.rows + outputs;
  const int64_t first = std::clamp<int64_t>(bounds[part], 0, outputs);
  const int64_t last = std::clamp<int64_t>(bounds[part + 1], first, outputs);
  std::fill_n(found, out_units(), -1);
  Part result = {first, last - first, 0};
  for (int64_t i = first; i < last; ++i) {
    const int64_t row = args_.rows[i];
    slots[i - first] = -1;
    if (row < 0 || row >= outputs) continue;
    int32_t& place = found[row / kPrunedLanes];
    if (place < 0) {
      if (result.units == most_units_) continue;
      units[result.units] = static_cast<int32_t>(row / kPrunedLanes);
      place = static_cast<int32_t>(result.units++);
    }
    slots[i - first] = static_cast<int32_t>(place * kPrunedLanes + row % kPrunedLanes);
  }
  return result;
}

void PrunedJob::RunItem(int64_t item, Worker& worker) const {
  const ConvGeometry& g = args_.geometry;
  const Part part = PartOf(item % args_.parts, worker.slots, worker.units, worker.found);
  const int64_t tile = item / args_.parts;
  const int64_t row_tile = tile / args_.column_tiles();
  const Corner at = {row_tile / args_.row_tiles(), row_tile % args_.row_tiles() * args_.tile.rows,
                     tile % args_.column_tiles() * args_.columns()};
  worker.panel.MoveTo(at.image, at.y, at.x);
  for (int64_t block = 0; block < args_.blocks(); ++block) {
    const int64_t channel = block * args_.block;
    worker.panel.Load(channel, std::min(args_.block, g.in_c - channel));
    Multiply(part, block, worker);
  }
  for (int64_t u = 0; u < part.units; ++u) {
    const float* sums = worker.sums + u * kPrunedLanes * sums_stride();
    if (args_.channels_first) {
      StorePlanes(worker.units[u], sums, at);
    } else {
      StorePixels(worker.units[u], sums, at);
    }
  }
}

void PrunedJob::Multiply(const Part& part, int64_t block, const Worker& worker) const {
  PrunedRows rows;
  rows.rows = args_.rows + part.first;
  rows.slots = worker.slots;
  rows.count = part.count;
  rows.starts = args_.starts + block * args_.geometry.out_c;
  rows.ends = rows.starts + args_.geometry.out_c;
  rows.entries = args_.entries;
  rows.values = args_.values;
  rows.windows = args_.windows;
  rows.panel = worker.panel.data();
  rows.last_window = worker.panel.last_window();
  rows.bias = args_.bias;
  rows.first = block == 0;
  rows.sums = worker.sums;
  rows.sums_stride = sums_stride();
  rows.vectors = args_.tile.vectors;
  isa_.multiply_rows(rows);
}

// Where the channels of a unit go for sixteen places of a tile: nullptr past its rows and columns.
void PrunedJob::PixelsOf(int64_t unit, int64_t place, const Corner& at, char** pixels) const {
  const ConvGeometry& g = args_.geometry;
  const int64_t rows = std::min(args_.tile.rows, g.out_h - at.y);
  const int64_t columns = std::min(args_.columns(), g.out_w - at.x);
  const int64_t step = g.out_c * SizeOf(args_.out_type);
  int64_t row = place / args_.tile.pitch, column = place % args_.tile.pitch;
  for (int64_t l = 0; l < kPrunedLanes; ++l) {
    const int64_t pixel = (at.image * g.out_h + at.y + row) * g.out_w + at.x + column;
    pixels[l] = row < rows && column < columns ? static_cast<char*>(args_.out) + pixel * step +
                                                     unit * kPrunedLanes * SizeOf(args_.out_type)
                                               : nullptr;
    if (++column == args_.tile.pitch) {
      column = 0;
      ++row;
    }
  }
}

// Sixteen channels as pixels, sixteen places at a time; float32 with nothing or a ReLU behind it
// goes straight from registers.
void PrunedJob::StorePixels(int64_t unit, const float* sums, const Corner& at) const {
  const ConvGeometry& g = args_.geometry;
  const int64_t width = std::min(kPrunedLanes, g.out_c - unit * kPrunedLanes);
  const bool straight = args_.out_type == DType::kF32 && (args_.activation == Activation::kNone ||
                                                          args_.activation == Activation::kRelu);
  alignas(64) float block[kPrunedLanes * kPrunedLanes];
  char* pixels[kPrunedLanes];
  FinishTile tile = {};
  tile.sums_stride = kPrunedLanes;
  tile.rows = 1;
  tile.width = width;
  tile.out_type = args_.out_type;
  tile.activation = args_.activation;
  for (int64_t place = 0; place < sums_stride(); place += kPrunedLanes) {
    PixelsOf(unit, place, at, pixels);
    if (straight) {
      isa_.store_block({sums + place, sums_stride(), reinterpret_cast<float* const*>(pixels), width,
                        args_.activation == Activation::kRelu});
      continue;
    }
    isa_.transpose_block(sums + place, sums_stride(), block);
    for (int64_t l = 0; l < kPrunedLanes; ++l) {
      if (pixels[l] == nullptr) continue;
      void* pixel = pixels[l];
      tile.pixels = &pixel;
      tile.sums = block + l * kPrunedLanes;
      MaskedConvIsa().finish(tile);
    }
  }
}

void PrunedJob::StorePlanes(int64_t unit, const float* sums, const Corner& at) const {
  const ConvGeometry& g = args_.geometry;
  const int64_t rows = std::min(args_.tile.rows, g.out_h - at.y);
  const int64_t size = SizeOf(args_.out_type);
  const int64_t channels = std::min(kPrunedLanes, g.out_c - unit * kPrunedLanes);
  const auto finish = MaskedConvIsa().finish;
  FinishTile tile = {};
  tile.rows = 1;
  tile.width = std::min(args_.columns(), g.out_w - at.x);
  tile.out_type = args_.out_type;
  tile.activation = args_.activation;
  for (int64_t c = 0; c < channels; ++c) {
    const int64_t plane = at.image * g.out_c + unit * kPrunedLanes + c;
    for (int64_t row = 0; row < rows; ++row) {
      tile.sums = sums + c * sums_stride() + row * args_.tile.pitch;
      const int64_t pixel = (plane * g.out_h + at.y + row) * g.out_w + at.x;
      void* target = static_cast<char*>(args_.out) + pixel * size;
      tile.pixels = &target;
      finish(tile);
    }
  }
}

}  // namespace jaxsparse
