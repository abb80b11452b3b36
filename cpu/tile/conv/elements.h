// Loading and storing elements over `Vec`: conversion, activation and rounding. Include after one
// vec_*.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "contracts/enums.gen.h"
#include "cpu/core/dtype.h"

namespace {

using jaxsparse::Activation;
using jaxsparse::DType;

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

}  // namespace
