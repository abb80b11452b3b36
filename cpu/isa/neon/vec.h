// Four floats in a NEON register of AArch64.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace {

struct Vec {
  using Reg = float32x4_t;
  static constexpr int kLanes = 4;
  static constexpr bool kWideFile = true;
  static constexpr const char* kName = "neon";

  static Reg Zero() { return vdupq_n_f32(0.0f); }
  static Reg Set(float v) { return vdupq_n_f32(v); }
  static Reg Load(const float* p) { return vld1q_f32(p); }
  static Reg LoadPartial(const float* p, int64_t n) {
    float lanes[kLanes] = {0, 0, 0, 0};
    for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
    return vld1q_f32(lanes);
  }
  static void Store(float* p, Reg v) { vst1q_f32(p, v); }
  static void StorePartial(float* p, Reg v, int64_t n) {
    float lanes[kLanes];
    vst1q_f32(lanes, v);
    for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
  }
  static Reg Fma(Reg a, Reg b, Reg c) { return vfmaq_f32(c, a, b); }
  static Reg Add(Reg a, Reg b) { return vaddq_f32(a, b); }
  static Reg Mul(Reg a, Reg b) { return vmulq_f32(a, b); }
  static Reg Div(Reg a, Reg b) { return vdivq_f32(a, b); }
  // A NaN in either operand is kept.
  static Reg Max(Reg a, Reg b) { return vmaxq_f32(a, b); }
  static Reg Min(Reg a, Reg b) { return vminq_f32(a, b); }
  // Lane i of `yes` where bit i is set, else of `no`.
  static Reg Select(uint32_t bits, Reg yes, Reg no) {
    const uint32_t lanes[kLanes] = {1, 2, 4, 8};
    return vbslq_f32(vtstq_u32(vdupq_n_u32(bits), vld1q_u32(lanes)), yes, no);
  }
  static Reg Round(Reg v) { return vrndnq_f32(v); }
  // 2^n for a whole n in [-126, 127]; infinity for 128.
  static Reg Exp2(Reg n) {
    const int32x4_t exponent = vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127));
    return vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23));
  }
  static Reg LoadBf16(const uint16_t* p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
  }
  static Reg LoadF16(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
  static void StoreBf16(uint16_t* p, Reg v) {
    const uint32x4_t bits = vreinterpretq_u32_f32(v);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t sum = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    vst1_u16(p, vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), sum, quiet), 16));
  }
  static void StoreF16(uint16_t* p, Reg v) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v))); }
};

}  // namespace
