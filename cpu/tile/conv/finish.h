// What surrounds the products, over `Vec`: conversion to float32 on the way in; bias, activation
// and rounding on the way out. Include after one vec_*.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/tile/conv/isa.h"

namespace {

using jaxsparse::Activation;
using jaxsparse::DType;
using jaxsparse::FinishTile;

// exp(x), relative error below 3e-7 on [-87, 88]; infinite above, never below the smallest normal
// number. A NaN stays.
Vec::Reg Exp(Vec::Reg x) {
  x = Vec::Min(Vec::Set(89.0f), Vec::Max(Vec::Set(-87.0f), x));
  const Vec::Reg n = Vec::Round(Vec::Mul(x, Vec::Set(1.44269504f)));
  Vec::Reg r = Vec::Fma(n, Vec::Set(-0.693359375f), x);
  r = Vec::Fma(n, Vec::Set(2.12194440e-4f), r);
  Vec::Reg p = Vec::Set(1.9875691e-4f);
  constexpr float kTaylor[] = {1.3981999e-3f, 8.3334519e-3f, 4.1665796e-2f, 1.6666666e-1f,
                               0.5f,          1.0f,          1.0f};
  for (const float c : kTaylor) p = Vec::Fma(p, r, Vec::Set(c));
  return Vec::Mul(p, Vec::Exp2(n));
}

// x * sigmoid(z)
Vec::Reg Gate(Vec::Reg x, Vec::Reg z) {
  const Vec::Reg one = Vec::Set(1.0f);
  return Vec::Div(x, Vec::Add(one, Exp(Vec::Mul(z, Vec::Set(-1.0f)))));
}

template <Activation kActivation>
Vec::Reg Activate(Vec::Reg x) {
  if constexpr (kActivation == Activation::kRelu) {
    x = Vec::Max(Vec::Zero(), x);
  } else if constexpr (kActivation == Activation::kRelu6) {
    x = Vec::Min(Vec::Set(6.0f), Vec::Max(Vec::Zero(), x));
  } else if constexpr (kActivation == Activation::kSilu) {
    x = Gate(x, x);
  } else if constexpr (kActivation == Activation::kGelu) {
    // (1 + tanh(u)) / 2 = sigmoid(2u), u = sqrt(2/pi) * (x + 0.044715 x^3)
    const Vec::Reg cubic = Vec::Fma(Vec::Mul(x, x), Vec::Set(0.044715f), Vec::Set(1.0f));
    x = Gate(x, Vec::Mul(Vec::Mul(x, cubic), Vec::Set(1.5957691216f)));
  }
  return x;
}

void StoreOut(DType type, void* out, Vec::Reg value, int64_t lanes) {
  if (type == DType::kF32) {
    float* target = static_cast<float*>(out);
    if (lanes == Vec::kLanes) return Vec::Store(target, value);
    return Vec::StorePartial(target, value, lanes);
  }
  uint16_t half[Vec::kLanes];
  if (type == DType::kBF16) {
    Vec::StoreBf16(half, value);
  } else {
    Vec::StoreF16(half, value);
  }
  std::memcpy(out, half, static_cast<size_t>(lanes) * sizeof(uint16_t));
}

// The first `lanes` elements; the others are zeros.
Vec::Reg LoadElements(DType type, const void* source, int64_t lanes) {
  if (type == DType::kF32) return Vec::LoadPartial(static_cast<const float*>(source), lanes);
  uint16_t half[Vec::kLanes] = {};
  std::memcpy(half, source, static_cast<size_t>(lanes) * sizeof(uint16_t));
  return type == DType::kBF16 ? Vec::LoadBf16(half) : Vec::LoadF16(half);
}

// Whole vectors of float32, with no residual: pixel by pixel, so that lines are written in order.
// Returns how many outputs that was.
template <Activation kActivation>
int64_t FinishWhole(const FinishTile& tile) {
  if (tile.out_type != DType::kF32 || tile.residual != nullptr) return 0;
  const int64_t whole = tile.width - tile.width % Vec::kLanes;
  const float* bias = tile.bias == nullptr ? nullptr : tile.bias + tile.out_offset;
  for (int64_t r = 0; r < tile.rows; ++r) {
    const float* sums = tile.sums + r * tile.sums_stride;
    float* out = static_cast<float*>(tile.pixels[r]) + tile.out_offset;
    for (int64_t o = 0; o < whole; o += Vec::kLanes) {
      Vec::Reg value = Vec::Load(sums + o);
      if (bias != nullptr) value = Vec::Add(value, Vec::Load(bias + o));
      Vec::Store(out + o, Activate<kActivation>(value));
    }
  }
  return whole;
}

template <Activation kActivation>
void FinishAs(const FinishTile& tile) {
  for (int64_t o = FinishWhole<kActivation>(tile); o < tile.width; o += Vec::kLanes) {
    const int64_t lanes = tile.width - o < Vec::kLanes ? tile.width - o : Vec::kLanes;
    const int64_t channel = tile.out_offset + o;
    Vec::Reg bias = Vec::Zero();
    if (tile.bias != nullptr) bias = Vec::LoadPartial(tile.bias + channel, lanes);
    for (int64_t r = 0; r < tile.rows; ++r) {
      Vec::Reg value = Vec::Load(tile.sums + r * tile.sums_stride + o);
      if (tile.bias != nullptr) value = Vec::Add(value, bias);
      const int64_t offset = channel * jaxsparse::SizeOf(tile.out_type);
      if (tile.residual != nullptr) {
        const char* residual = static_cast<const char*>(tile.residual[r]) + offset;
        value = Vec::Add(value, LoadElements(tile.out_type, residual, lanes));
      }
      value = Activate<kActivation>(value);
      StoreOut(tile.out_type, static_cast<char*>(tile.pixels[r]) + offset, value, lanes);
    }
  }
}

void Finish(const FinishTile& tile) {
  switch (tile.activation) {
    case Activation::kNone:
      return FinishAs<Activation::kNone>(tile);
    case Activation::kRelu:
      return FinishAs<Activation::kRelu>(tile);
    case Activation::kRelu6:
      return FinishAs<Activation::kRelu6>(tile);
    case Activation::kSilu:
      return FinishAs<Activation::kSilu>(tile);
    case Activation::kGelu:
      return FinishAs<Activation::kGelu>(tile);
  }
}

void ToF32(DType type, const void* source, int64_t count, float* target) {
  if (type == DType::kF32) {
    std::memcpy(target, source, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  const uint16_t* half = static_cast<const uint16_t*>(source);
  const bool bf16 = type == DType::kBF16;
  int64_t i = 0;
  for (; i + Vec::kLanes <= count; i += Vec::kLanes) {
    Vec::Store(target + i, bf16 ? Vec::LoadBf16(half + i) : Vec::LoadF16(half + i));
  }
  if (i < count) {
    uint16_t rest[Vec::kLanes] = {};
    std::memcpy(rest, half + i, static_cast<size_t>(count - i) * sizeof(uint16_t));
    Vec::StorePartial(target + i, bf16 ? Vec::LoadBf16(rest) : Vec::LoadF16(rest), count - i);
  }
}

}  // namespace
