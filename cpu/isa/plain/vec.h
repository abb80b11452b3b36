// Four floats, in whatever registers the compiler's baseline has.
#pragma once

#include <cmath>
#include <cstdint>

#include "cpu/isa/half.h"

namespace {

struct Vec {
  typedef float Reg __attribute__((vector_size(16)));
  static constexpr int kLanes = 4;
  static constexpr bool kWideFile = false;
  static constexpr const char* kName = "plain";

  static Reg Zero() { return Reg{0, 0, 0, 0}; }
  static Reg Set(float v) { return Reg{v, v, v, v}; }
  static Reg Load(const float* p) {
    Reg v;
    __builtin_memcpy(&v, p, sizeof(v));
    return v;
  }
  static Reg LoadPartial(const float* p, int64_t n) {
    Reg v = Zero();
    for (int64_t i = 0; i < n; ++i) v[i] = p[i];
    return v;
  }
  static void Store(float* p, Reg v) { __builtin_memcpy(p, &v, sizeof(v)); }
  static void StorePartial(float* p, Reg v, int64_t n) {
    for (int64_t i = 0; i < n; ++i) p[i] = v[i];
  }
  static Reg Fma(Reg a, Reg b, Reg c) { return a * b + c; }
  static Reg Add(Reg a, Reg b) { return a + b; }
  static Reg Mul(Reg a, Reg b) { return a * b; }
  static Reg Div(Reg a, Reg b) { return a / b; }
  // A NaN in the second operand is kept.
  static Reg Max(Reg a, Reg b) {
    for (int i = 0; i < kLanes; ++i) b[i] = a[i] > b[i] ? a[i] : b[i];
    return b;
  }
  static Reg Min(Reg a, Reg b) {
    for (int i = 0; i < kLanes; ++i) b[i] = a[i] < b[i] ? a[i] : b[i];
    return b;
  }
  // Lane i of `yes` where bit i is set, else of `no`.
  static Reg Select(uint32_t bits, Reg yes, Reg no) {
    for (int i = 0; i < kLanes; ++i) no[i] = (bits >> i & 1u) != 0 ? yes[i] : no[i];
    return no;
  }
  static Reg Round(Reg v) {
    for (int i = 0; i < kLanes; ++i) v[i] = __builtin_nearbyintf(v[i]);
    return v;
  }
  // 2^n for a whole n in [-126, 127]; infinity for 128.
  static Reg Exp2(Reg n) {
    for (int i = 0; i < kLanes; ++i) {
      const uint32_t exponent =
          n[i] != n[i] ? 127u : static_cast<uint32_t>(static_cast<int32_t>(n[i]) + 127);
      n[i] = FloatOfBits(exponent << 23);
    }
    return n;
  }
  static Reg LoadBf16(const uint16_t* p) {
    return Reg{FloatOfBf16(p[0]), FloatOfBf16(p[1]), FloatOfBf16(p[2]), FloatOfBf16(p[3])};
  }
  static Reg LoadF16(const uint16_t* p) {
    return Reg{FloatOfF16(p[0]), FloatOfF16(p[1]), FloatOfF16(p[2]), FloatOfF16(p[3])};
  }
  static void StoreBf16(uint16_t* p, Reg v) {
    for (int i = 0; i < kLanes; ++i) p[i] = Bf16OfFloat(v[i]);
  }
  static void StoreF16(uint16_t* p, Reg v) {
    for (int i = 0; i < kLanes; ++i) p[i] = F16OfFloat(v[i]);
  }
};

}  // namespace
