// What attention does to a strip of scores, written once over `Vec` and compiled once per
// instruction set.
//
// Floor: an exponential is 14 instructions a vector, and a strip of R rows x C columns spends 2 *
// depth multiply-adds a score: at a depth of 64 the rest of the softmax is a sixth of it. A row's
// maximum and sum are folded over lanes once per strip.
//
// Include after one vec.h. Everything has internal linkage.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "cpu/tile/attention/isa.h"

namespace {

using jaxsparse::AttentionIsa;
using jaxsparse::GradTile;
using jaxsparse::kBitColumns;
using jaxsparse::kChunkBits;
using jaxsparse::kStripBlock;
using jaxsparse::ScoreTile;
using jaxsparse::SoftmaxTile;
using jaxsparse::StripSize;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A number as 2^power * e^rest.
struct Power {
  Vec::Reg power, rest;

  explicit Power(Vec::Reg x) {
    power = Vec::Round(Vec::Mul(x, Vec::Set(1.44269504f)));
    rest = Vec::Fma(power, Vec::Set(-0.693359375f), x);
    rest = Vec::Fma(power, Vec::Set(2.12194440e-4f), rest);
  }
  // (e^rest - 1) / rest
  Vec::Reg Growth() const {
    Vec::Reg p = Vec::Set(1.3981999e-3f);
    constexpr float kTaylor[] = {8.3334519e-3f, 4.1665796e-2f, 1.6666666e-1f, 0.5f, 1.0f};
    for (const float c : kTaylor) p = Vec::Fma(p, rest, Vec::Set(c));
    return p;
  }
};

// exp(x) for x up to 88, relative error below 3e-7; 0 below -87.7, as of -inf. A NaN stays.
inline Vec::Reg ExpToZero(Vec::Reg x) {
  const Power of(Vec::Min(Vec::Set(88.0f), Vec::Max(Vec::Set(-88.0f), x)));
  return Vec::Mul(Vec::Fma(of.Growth(), of.rest, Vec::Set(1.0f)), Vec::Exp2(of.power));
}

// tanh(x) = e / (e + 2), e = exp(2x) - 1: the relative error is small near 0, too.
inline Vec::Reg Tanh(Vec::Reg x) {
  const Power of(Vec::Min(Vec::Set(40.0f), Vec::Max(Vec::Set(-40.0f), Vec::Add(x, x))));
  const Vec::Reg scale = Vec::Exp2(of.power);
  const Vec::Reg whole = Vec::Add(scale, Vec::Set(-1.0f));
  const Vec::Reg e = Vec::Fma(scale, Vec::Mul(of.Growth(), of.rest), whole);
  return Vec::Div(e, Vec::Add(e, Vec::Set(2.0f)));
}

// Calls f(offset in the strip, first column) for each vector of row r.
template <typename F>
inline void ForColumns(const StripSize& size, int64_t r, F f) {
  for (int64_t block = 0; block < size.columns; block += kStripBlock) {
    const int64_t at = block * size.height + r * kStripBlock;
    const int64_t count = size.columns - block < kStripBlock ? size.columns - block : kStripBlock;
    for (int64_t c = 0; c < count; c += Vec::kLanes) f(at + c, block + c);
  }
}

inline uint32_t BitsAt(const uint16_t* row, int64_t column) {
  return static_cast<uint32_t>(row[column / kBitColumns]) >> (column % kBitColumns);
}

void Score(const ScoreTile& tile) {
  const Vec::Reg one = Vec::Set(1.0f), slope = Vec::Set(tile.slope);
  for (int64_t r = 0; r < tile.size.rows; ++r) {
    const uint16_t* bits = tile.bits == nullptr ? nullptr : tile.bits + r * kChunkBits;
    const Vec::Reg row_at = Vec::Set(tile.slope == 0.0f ? 0.0f : -tile.row_at[r]);
    ForColumns(tile.size, r, [&](int64_t at, int64_t c) {
      Vec::Reg s = Vec::Load(tile.scores + at);
      if (tile.cap > 0.0f) {
        const Vec::Reg t = Tanh(s);
        s = Vec::Mul(t, Vec::Set(tile.cap));
        if (tile.bend != nullptr) {
          Vec::Reg bend = Vec::Fma(Vec::Mul(t, Vec::Set(-1.0f)), t, one);
          if (bits != nullptr) bend = Vec::Select(BitsAt(bits, c), bend, Vec::Zero());
          Vec::Store(tile.bend + at, bend);
        }
      }
      if (tile.slope != 0.0f) {
        s = Vec::Fma(slope, Vec::Add(Vec::Load(tile.column_at + c), row_at), s);
      }
      if (tile.added != nullptr) s = Vec::Add(s, Vec::Load(tile.added + at));
      if (bits != nullptr) s = Vec::Select(BitsAt(bits, c), s, Vec::Set(-kInfinity));
      Vec::Store(tile.scores + at, s);
    });
  }
}

inline float Largest(Vec::Reg v) {
  float lanes[Vec::kLanes];
  Vec::Store(lanes, v);
  float found = lanes[0];
  for (int i = 1; i < Vec::kLanes; ++i) found = lanes[i] > found ? lanes[i] : found;
  return found;
}

inline float SumOf(Vec::Reg v) {
  float lanes[Vec::kLanes];
  Vec::Store(lanes, v);
  float sum = 0.0f;
  for (int i = 0; i < Vec::kLanes; ++i) sum += lanes[i];
  return sum;
}

void Softmax(const SoftmaxTile& tile) {
  for (int64_t r = 0; r < tile.size.rows; ++r) {
    const float before = tile.top[r];
    Vec::Reg most = Vec::Set(before);
    ForColumns(tile.size, r,
               [&](int64_t at, int64_t) { most = Vec::Max(most, Vec::Load(tile.scores + at)); });
    const float top = Largest(most);
    // Nothing is kept yet: every exponential is 0.
    const Vec::Reg base = Vec::Set(top == -kInfinity ? 0.0f : -top);
    Vec::Reg sum = Vec::Zero();
    ForColumns(tile.size, r, [&](int64_t at, int64_t) {
      const Vec::Reg e = ExpToZero(Vec::Add(Vec::Load(tile.scores + at), base));
      Vec::Store(tile.scores + at, e);
      sum = Vec::Add(sum, e);
    });
    const float shrink = before == top ? 1.0f : std::exp(before - top);
    tile.shrink[r] = shrink;
    tile.top[r] = top;
    tile.total[r] = tile.total[r] * shrink + SumOf(sum);
  }
}

void Gradient(const GradTile& tile) {
  const Vec::Reg minus = Vec::Set(-1.0f);
  for (int64_t r = 0; r < tile.size.rows; ++r) {
    const uint16_t* bits = tile.bits == nullptr ? nullptr : tile.bits + r * kChunkBits;
    const bool by_column = tile.by_column;
    const Vec::Reg row_lse = Vec::Set(by_column ? 0.0f : tile.lse[r]);
    const Vec::Reg row_delta = Vec::Set(by_column ? 0.0f : tile.delta[r]);
    ForColumns(tile.size, r, [&](int64_t at, int64_t c) {
      const Vec::Reg lse = by_column ? Vec::Load(tile.lse + c) : row_lse;
      const Vec::Reg delta = by_column ? Vec::Load(tile.delta + c) : row_delta;
      Vec::Reg p = ExpToZero(Vec::Fma(minus, lse, Vec::Load(tile.scores + at)));
      if (bits != nullptr) p = Vec::Select(BitsAt(bits, c), p, Vec::Zero());  // lse may be NaN
      Vec::Reg ds = Vec::Mul(p, Vec::Fma(minus, delta, Vec::Load(tile.slopes + at)));
      if (tile.bend != nullptr) ds = Vec::Mul(ds, Vec::Load(tile.bend + at));
      if (bits != nullptr) ds = Vec::Select(BitsAt(bits, c), ds, Vec::Zero());
      Vec::Store(tile.scores + at, p);
      Vec::Store(tile.slopes + at, ds);
    });
  }
}

void CopyRows(const float* from, int64_t rows, int64_t width, float* to, int64_t to_step) {
  for (int64_t r = 0; r < rows; ++r, from += width, to += to_step) {
    for (int64_t c = 0; c < width; c += Vec::kLanes) Vec::Store(to + c, Vec::Load(from + c));
  }
}

void Accumulate(const float* from, int64_t rows, int64_t width, const float* factor, float* to,
                int64_t to_step) {
  for (int64_t r = 0; r < rows; ++r, from += width, to += to_step) {
    const Vec::Reg by = Vec::Set(factor == nullptr ? 1.0f : factor[r]);
    for (int64_t c = 0; c < width; c += Vec::kLanes) {
      Vec::Store(to + c, Vec::Fma(Vec::Load(to + c), by, Vec::Load(from + c)));
    }
  }
}

float Dot(const float* a, const float* b, int64_t count) {
  Vec::Reg sum = Vec::Zero();
  int64_t i = 0;
  for (; i + Vec::kLanes <= count; i += Vec::kLanes) {
    sum = Vec::Fma(Vec::Load(a + i), Vec::Load(b + i), sum);
  }
  if (i < count) {
    sum = Vec::Fma(Vec::LoadPartial(a + i, count - i), Vec::LoadPartial(b + i, count - i), sum);
  }
  return SumOf(sum);
}

AttentionIsa MakeAttentionTable() {
  return {Vec::kLanes, Score, Softmax, Gradient, CopyRows, Accumulate, Dot};
}

}  // namespace
