#include "cpu/kernels/pruned_conv/panel.h"

#include <algorithm>
#include <cstring>

namespace jaxsparse {
namespace {

Checked LanesUp(Checked n) { return CeilOf(n, kPrunedLanes) * kPrunedLanes; }

}  // namespace

PrunedPanel::PrunedPanel(const PrunedArgs& args, const PrunedIsa& isa)
    : args_(args),
      isa_(isa),
      strip_rows_(StripRows(args.geometry, args.tile.rows).or_max()),
      stride_(LanesUp(Checked(strip_rows_) * StripCount(args.geometry, args.tile.shared) *
                      args.tile.pitch)
                  .or_max()) {}

void PrunedPanel::Take(ScratchCarver& carver) {
  sources_ = carver.Take<const char*>(args_.channels_first ? 0 : stride_);
  runs_ = carver.Take<Run>(args_.channels_first ? stride_ : 0);
  zeros_ = carver.Take<char>(Checked(args_.geometry.in_c) * SizeOf(args_.in_type));
  panel_ = carver.Take<float>(Checked(args_.block) * stride_ + kSlack);
}

void PrunedPanel::Clear() {
  std::memset(zeros_, 0, static_cast<size_t>(args_.geometry.in_c * SizeOf(args_.in_type)));
  std::fill_n(panel_, args_.block * stride_ + kSlack, 0.0f);
}

// The index that `at` of a spread axis stands for, or -1: padding.
int64_t PrunedPanel::Unspread(int64_t at, int64_t spread, int64_t size) {
  if (spread != 1) {
    if (at % spread != 0) return -1;
    at /= spread;
  }
  return at >= 0 && at < size ? at : -1;
}

void PrunedPanel::MoveTo(int64_t image, int64_t oy, int64_t ox) {
  const ConvGeometry& g = args_.geometry;
  const PrunedTile& tile = args_.tile;
  const int64_t columns = tile.shared ? tile.pitch : std::min(tile.pitch, args_.width() - ox);
  image_ =
      static_cast<const char*>(args_.x) + image * g.in_c * g.in_h * g.in_w * SizeOf(args_.in_type);
  if (args_.channels_first) {
    std::fill_n(panel_, args_.block * stride_, 0.0f);
    run_count_ = 0;
  } else {
    std::fill(sources_, sources_ + stride_, zeros_);
  }
  EachStripRow(g, tile.rows, [&](int64_t j, int64_t row) {
    const auto add = [&](int64_t band, int64_t x, int64_t at, int64_t count) {
      const int64_t top = (band * args_.height() + oy) * g.stride_h - g.pad_top;
      const int64_t y = Unspread(top + row, g.lhs_dilation_h, g.in_h);
      if (y < 0) return;
      EachStrip(g, tile.shared, [&](int64_t q, int64_t column) {
        const int64_t place = (q * strip_rows_ + j) * tile.pitch + at;
        AddRow(y, x * g.stride_w + column - g.pad_left, count, place);
      });
    };
    if (tile.bands == 1) {
      add(0, ox, 0, columns);
    } else {
      EachBand(g.out_w, ox, columns, add);
    }
  });
}

// The places of one strip row: input columns first, first + stride, ...
void PrunedPanel::AddRow(int64_t y, int64_t first, int64_t columns, int64_t place) {
  const ConvGeometry& g = args_.geometry;
  if (args_.channels_first || g.lhs_dilation_w != 1) return AddPlaces(y, first, columns, place);
  const int64_t skipped = first < 0 ? (g.stride_w - 1 - first) / g.stride_w : 0;
  const int64_t inside = g.in_w > first ? (g.in_w - first + g.stride_w - 1) / g.stride_w : 0;
  const int64_t pixel = g.in_c * SizeOf(args_.in_type);
  for (int64_t c = skipped; c < std::min(inside, columns); ++c) {
    sources_[place + c] = image_ + (y * g.in_w + first + c * g.stride_w) * pixel;
  }
}

void PrunedPanel::AddPlaces(int64_t y, int64_t first, int64_t columns, int64_t place) {
  const ConvGeometry& g = args_.geometry;
  const int64_t pixel = g.in_c * SizeOf(args_.in_type);
  for (int64_t c = 0; c < columns; ++c) {
    const int64_t x = Unspread(first + c * g.stride_w, g.lhs_dilation_w, g.in_w);
    if (x < 0) continue;
    if (!args_.channels_first) {
      sources_[place + c] = image_ + (y * g.in_w + x) * pixel;
      continue;
    }
    Run* last = run_count_ > 0 ? runs_ + run_count_ - 1 : nullptr;
    const int64_t from = y * g.in_w + x;
    if (last != nullptr && last->place + last->count == place + c &&
        last->from + last->count * g.stride_w == from) {
      ++last->count;
    } else {
      runs_[run_count_++] = {place + c, from, 1};
    }
  }
}

void PrunedPanel::Load(int64_t channel, int64_t channels) {
  if (args_.channels_first) return LoadPlanes(channel, channels);
  for (int64_t place = 0; place < stride_; place += kPrunedLanes) {
    for (int64_t c = 0; c < channels; c += kPrunedLanes) {
      isa_.load_block({sources_ + place, args_.in_type, channel + c,
                       std::min(kPrunedLanes, channels - c), panel_ + c * stride_ + place,
                       stride_});
    }
  }
}

// Padding was zeroed once for the tile; the pixels come in runs of a row of a plane.
void PrunedPanel::LoadPlanes(int64_t channel, int64_t channels) {
  const int64_t size = SizeOf(args_.in_type), step = args_.geometry.stride_w;
  const int64_t plane = args_.geometry.in_h * args_.geometry.in_w * size;
  for (int64_t c = 0; c < channels; ++c) {
    const char* pixels = image_ + (channel + c) * plane;
    float* panel = panel_ + c * stride_;
    for (int64_t r = 0; r < run_count_; ++r) {
      const Run& run = runs_[r];
      isa_.load_run({pixels + run.from * size, args_.in_type, run.count, step, panel + run.place});
    }
  }
}

}  // namespace jaxsparse
