// Scalar float16 and bfloat16, for units whose instruction set converts neither.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

float FloatOfBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

uint32_t BitsOfFloat(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float FloatOfBf16(uint16_t v) { return FloatOfBits(static_cast<uint32_t>(v) << 16); }

// Round to nearest, ties to even; a NaN stays a (quiet) NaN.
uint16_t Bf16OfFloat(float value) {
  const uint32_t bits = BitsOfFloat(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float FloatOfF16(uint16_t v) {
  const uint32_t sign = static_cast<uint32_t>(v & 0x8000u) << 16;
  const uint32_t magnitude = v & 0x7fffu;
  if (magnitude >= 0x7c00u) {  // infinity, NaN
    return FloatOfBits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  }
  if (magnitude < 0x400u) {  // subnormal: magnitude * 2^-24
    const float value = static_cast<float>(magnitude) * 5.9604644775390625e-8f;
    return FloatOfBits(sign | BitsOfFloat(value));
  }
  return FloatOfBits(sign | ((magnitude << 13) + 0x38000000u));
}

uint16_t F16OfFloat(float value) {
  const uint32_t bits = BitsOfFloat(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude <
      0x38800000u) {  // subnormal result: adding 0.5 leaves the rounded value in the low bits
    const uint32_t rounded = BitsOfFloat(FloatOfBits(magnitude) + 0.5f) - 0x3f000000u;
    return static_cast<uint16_t>(sign | rounded);
  }
  return static_cast<uint16_t>(
      sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13));
}

}  // namespace
