// Elements of each type as a register of floats. Include after one vec.h.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cpu/core/dtype.h"

namespace {

using jaxsparse::DType;

template <DType kType>
using Element = std::conditional_t<kType == DType::kF32, float, uint16_t>;

template <DType kType>
inline Vec::Reg LoadVector(const Element<kType>* p) {
  if constexpr (kType == DType::kF32) return Vec::Load(p);
  if constexpr (kType == DType::kBF16) return Vec::LoadBf16(p);
  if constexpr (kType == DType::kF16) return Vec::LoadF16(p);
}

template <DType kType>
inline Vec::Reg LoadSome(const Element<kType>* p, int64_t n) {
  Element<kType> lanes[Vec::kLanes] = {};
  std::memcpy(lanes, p, n * sizeof(*p));
  return LoadVector<kType>(lanes);
}

}  // namespace
