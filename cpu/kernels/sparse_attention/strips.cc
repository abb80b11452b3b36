#include "cpu/kernels/sparse_attention/strips.h"

#include <algorithm>

#include "cpu/tile/matmul/strip.h"

namespace jaxsparse {
namespace {

float ReadFloat(DType type, const void* at, int64_t index) {
  if (type == DType::kF32) return static_cast<const float*>(at)[index];
  float value = 0.0f;
  MaskedConvIsa().to_f32(type, ElementAt(at, index, type), 1, &value);
  return value;
}

}  // namespace

RowStrips::RowStrips(ScratchCarver& carver, int64_t most_rows, int64_t depth)
    : padded_(RoundUp(depth, kStripBlock)) {
  strips_ = carver.Take<float>(Checked(most_rows + kMaxProductRows) * padded_);
}

StripProducts::StripProducts()
    : isa_(AttentionTiles()), convert_(MaskedConvIsa()), tiles_(MatmulTiles()) {
  shape_ = convert_.wide_file ? ProductShape{12, 2} : ProductShape{6, 2};
  width_ = shape_.vectors * isa_.lanes;
}

StripSize StripProducts::Size(int64_t row, int64_t rows, int64_t columns) const {
  const int64_t count = std::min<int64_t>(shape_.rows, rows - row);
  return {count, TileHeight(tiles_, shape_.vectors, count), columns};
}

void StripProducts::Load(RowStrips& strips, const TokenSource& source, int64_t first, int64_t count,
                         float scale) const {
  const void* rows[kMaxProductRows];
  for (int64_t row = 0; row < count; row += shape_.rows) {
    const StripSize size = Size(row, count, 0);
    for (int64_t r = 0; r < size.rows; ++r) {
      rows[r] = ElementAt(source.at, (first + row + r) * source.stride, source.type);
    }
    float* strip = strips.strips_ + row * strips.padded_;
    LoadStrip(convert_, source.type, rows, size.rows, size.height, source.depth, strip);
    if (scale == 1.0f) continue;
    for (int64_t d = 0; d < source.depth; d += kStripBlock) {
      const int64_t columns = std::min(source.depth - d, kStripBlock);
      for (int64_t r = 0; r < size.height; ++r, strip += kStripBlock) {
        for (int64_t c = 0; c < columns; ++c) strip[c] *= scale;
      }
    }
  }
}

void StripProducts::Scores(const float* strip, const StripSize& size, int64_t depth,
                           const GatheredTokens& tokens, float* scores) const {
  alignas(64) float sums[kMaxProductRows * kMaxPanelFloats];
  const ProductTileFn multiply = tiles_.product[shape_.vectors][size.height];
  for (int64_t c = 0; c < size.columns; c += width_) {
    multiply({strip, tokens.panels + c * depth, depth, width_, nullptr, nullptr, sums});
    float* target = scores + c / kStripBlock * size.height * kStripBlock + c % kStripBlock;
    isa_.copy(sums, size.rows, width_, target, kStripBlock);
  }
}

void StripProducts::AddTokens(const float* scores, const StripSize& size,
                              const GatheredTokens& tokens, const float* factor,
                              float* sums) const {
  alignas(64) float added[kMaxProductRows * kMaxPanelFloats];
  const ProductTileFn multiply = tiles_.product[shape_.vectors][size.height];
  for (int64_t c = 0; c < tokens.step; c += width_) {
    multiply({scores, tokens.rows + c, size.columns, tokens.step, nullptr, nullptr, added});
    isa_.accumulate(added, size.rows, width_, factor, sums + c, tokens.step);
  }
}

void StripProducts::Store(float* sums, int64_t step, const float* factor, const TokenSource& to,
                          int64_t first, int64_t count) const {
  void* rows[kMostBlockRows];
  for (int64_t r = 0; r < count; ++r) {
    rows[r] = const_cast<char*>(ElementAt(to.at, (first + r) * to.stride, to.type));
    for (int64_t c = 0; c < to.depth; ++c) sums[r * step + c] *= factor[r];
  }
  convert_.finish({sums, step, count, to.depth, nullptr, rows, 0, to.type, Activation::kNone});
}

Additions::Additions(const AttentionArgs& args, int64_t b, int64_t head, bool turned)
    : bias(&args.bias), slope(args.slopes == nullptr ? 0.0f : args.slopes[head]) {
  base = b * bias->batch_stride + head * bias->head_stride;
  row_stride = turned ? bias->kv_stride : bias->q_stride;
  column_stride = turned ? bias->q_stride : bias->kv_stride;
  if (turned) slope = -slope;
}

const float* Additions::Load(const StripSize& size, int64_t first, const ColumnGather& columns,
                             float* strip) const {
  if (bias->at == nullptr) return nullptr;
  for (int64_t r = 0; r < size.rows; ++r) {
    const int64_t row = base + (first + r) * row_stride;
    for (int64_t c = 0; c < size.columns; ++c) {
      const int64_t token = std::max<int64_t>(columns.tokens()[c], 0);
      strip[c / kStripBlock * size.height * kStripBlock + r * kStripBlock + c % kStripBlock] =
          ReadFloat(bias->type, bias->at, row + token * column_stride);
    }
  }
  return strip;
}

}  // namespace jaxsparse
