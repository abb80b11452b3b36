// What surrounds the products, over `Vec`: conversion to float32 on the way in; bias, activation
// and rounding on the way out. Include after one vec_*.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/tile/conv/elements.h"
#include "cpu/tile/conv/isa.h"

namespace {

using jaxsparse::FinishTile;

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
