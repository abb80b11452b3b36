#include "cpu/kernels/pruned_conv/job.h"

#include <algorithm>

#include "cpu/tile/conv/isa.h"

namespace jaxsparse {

PrunedJob::PrunedJob(const PrunedArgs& args, int64_t pool_workers)
    : args_(args), isa_(PrunedIsaInUse()) {
  const ConvGeometry& g = args_.geometry;
  const Checked items = Checked(g.batch) * args_.row_tiles() * args_.column_tiles() * args_.parts;
  if (!items.valid()) return;
  items_.emplace(items.or_max());
  // No part has more units than this: a part's rows are whole units.
  for (int64_t p = 0; p < args_.parts; ++p) {
    const int32_t* bounds = args_.rows + g.out_c;
    const int64_t rows = std::clamp<int64_t>(int64_t{bounds[p + 1]} - bounds[p], 0, g.out_c);
    most_units_ = std::max(most_units_, rows);
  }
  most_units_ = std::min((most_units_ + kPrunedLanes - 1) / kPrunedLanes + 1, out_units());
  ScratchCarver carver(args_.scratch);
  Take(carver);
  const int64_t least = carver.used().or_max();
  if (args_.scratch_bytes < least) return;
  const int64_t room = 1 + (args_.scratch_bytes - least) / (least + ScratchCarver::kAlign);
  workers_ = std::clamp<int64_t>(std::min(room, items.or_max()), 1, pool_workers);
}

PrunedJob::Worker PrunedJob::Take(ScratchCarver& carver) const {
  Worker worker = {PrunedPanel(args_, isa_), nullptr, nullptr, nullptr, nullptr};
  worker.panel.Take(carver);
  worker.slots = carver.Take<int32_t>(args_.geometry.out_c);
  worker.units = carver.Take<int32_t>(most_units_);
  worker.found = carver.Take<int32_t>(out_units());
  worker.sums = carver.Take<float>(Checked(most_units_) * kPrunedLanes * sums_stride());
  return worker;
}

void PrunedJob::Run(int64_t index) {
  ScratchCarver carver(args_.scratch);
  for (int64_t w = 0; w < index; ++w) Take(carver);
  Worker worker = Take(carver);
  worker.panel.Clear();
  for (int64_t item; items_->Next(index, &item);) RunItem(item, worker);
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
  if (!args_.channels_first) return StorePixels(part, worker, at);
  for (int64_t u = 0; u < part.units; ++u) {
    StorePlanes(worker.units[u], worker.sums + u * kPrunedLanes * sums_stride(), at);
  }
}

void PrunedJob::Multiply(const Part& part, int64_t block, const Worker& worker) const {
  PrunedRows rows;
  rows.rows = args_.rows + part.first;
  rows.slots = worker.slots;
  rows.count = part.count;
  rows.starts = args_.starts + block * args_.geometry.out_c;
  rows.ends = rows.starts + 1;  // where the next row of the block, or the next block, begins
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

// Where the channels of the sixteen places of a tile from `place` on go: nullptr past its rows and
// columns. `place` becomes the next one. False where none goes anywhere.
bool PrunedJob::PixelsOf(Place& place, const Corner& at, char** pixels) const {
  const ConvGeometry& g = args_.geometry;
  const int64_t rows = std::min(args_.tile.rows, args_.height() - at.y);
  const int64_t columns = std::min(args_.columns(), args_.width() - at.x);
  const int64_t step = g.out_c * SizeOf(args_.out_type);
  bool any = false;
  for (int64_t l = 0, count; l < kPrunedLanes; l += count) {
    const int64_t y = place.band * args_.height() + at.y + place.row;
    if (place.row < rows && place.column < columns && y < g.out_h) {
      count = std::min({kPrunedLanes - l, columns - place.column, g.out_w - place.x});
      char* pixel =
          static_cast<char*>(args_.out) + ((at.image * g.out_h + y) * g.out_w + place.x) * step;
      for (int64_t i = 0; i < count; ++i) pixels[l + i] = pixel + i * step;
      any = true;
    } else {
      count = std::min({kPrunedLanes - l, args_.tile.pitch - place.column, g.out_w - place.x});
      std::fill_n(pixels + l, count, nullptr);
    }
    place.x += count;
    if (place.x == g.out_w) {
      place.x = 0;
      ++place.band;
    }
    place.column += count;
    if (place.column == args_.tile.pitch) place = FirstPlace(place.row + 1, at);
  }
  return any;
}

PrunedJob::Place PrunedJob::FirstPlace(int64_t row, const Corner& at) const {
  return {row, 0, at.x / args_.geometry.out_w, at.x % args_.geometry.out_w};
}

// Sixteen places at a time, all of their channels: the neighbours of a cache line are written one
// after the other.
void PrunedJob::StorePixels(const Part& part, const Worker& worker, const Corner& at) const {
  Place next = FirstPlace(0, at);
  for (int64_t place = 0; place < sums_stride(); place += kPrunedLanes) {
    char* pixels[kPrunedLanes];
    if (!PixelsOf(next, at, pixels)) continue;
    for (int64_t u = 0; u < part.units; ++u) {
      StoreUnit(worker.units[u], worker.sums + u * kPrunedLanes * sums_stride() + place, pixels);
    }
  }
}

// Sixteen channels of sixteen places; float32 goes straight from registers.
void PrunedJob::StoreUnit(int64_t unit, const float* sums, char* const* pixels) const {
  const int64_t channel = unit * kPrunedLanes;
  const int64_t width = std::min(kPrunedLanes, args_.geometry.out_c - channel);
  if (args_.out_type == DType::kF32) {
    isa_.store_block({sums, sums_stride(), reinterpret_cast<float* const*>(pixels), channel, width,
                      args_.activation});
    return;
  }
  alignas(64) float block[kPrunedLanes * kPrunedLanes];
  isa_.transpose_block(sums, sums_stride(), block);
  FinishTile tile = {};
  tile.sums_stride = kPrunedLanes;
  tile.rows = 1;
  tile.width = width;
  tile.out_type = args_.out_type;
  tile.activation = args_.activation;
  for (int64_t l = 0; l < kPrunedLanes; ++l) {
    if (pixels[l] == nullptr) continue;
    void* pixel = pixels[l] + channel * SizeOf(args_.out_type);
    tile.pixels = &pixel;
    tile.sums = block + l * kPrunedLanes;
    MaskedConvIsa().finish(tile);
  }
}

void PrunedJob::StorePlanes(int64_t unit, const float* sums, const Corner& at) const {
  const ConvGeometry& g = args_.geometry;
  const int64_t rows = std::min(args_.tile.rows, args_.height() - at.y);
  const int64_t columns = std::min(args_.columns(), args_.width() - at.x);
  const int64_t size = SizeOf(args_.out_type);
  const int64_t channels = std::min(kPrunedLanes, g.out_c - unit * kPrunedLanes);
  const auto finish = MaskedConvIsa().finish;
  FinishTile tile = {};
  tile.rows = 1;
  tile.out_type = args_.out_type;
  tile.activation = args_.activation;
  for (int64_t c = 0; c < channels; ++c) {
    const int64_t plane = at.image * g.out_c + unit * kPrunedLanes + c;
    for (int64_t row = 0; row < rows; ++row) {
      const float* from = sums + c * sums_stride() + row * args_.tile.pitch;
      EachBand(g.out_w, at.x, columns, [&](int64_t band, int64_t x, int64_t first, int64_t count) {
        const int64_t y = band * args_.height() + at.y + row;
        if (y >= g.out_h) return;
        void* target = static_cast<char*>(args_.out) + ((plane * g.out_h + y) * g.out_w + x) * size;
        tile.pixels = &target;
        tile.sums = from + first;
        tile.width = count;
        finish(tile);
      });
    }
  }
}

}  // namespace jaxsparse
