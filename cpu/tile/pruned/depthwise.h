// A depthwise convolution with frozen weights, one instruction set a unit: channels are the lanes,
// in the layout that images have, so nothing is rewritten.
//
// Floor: bytes of the image and of the result once; one load and one multiply-add a tap and vector.
// Up to eight neighbours share the load of a weight.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/tile/conv/elements.h"
#include "cpu/tile/pruned/isa.h"

namespace {

using jaxsparse::PrunedDepthwise;

constexpr int kNeighbours = 8;

Vec::Reg ActivateAs(Activation activation, Vec::Reg x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return Activate<Activation::kRelu>(x);
    case Activation::kRelu6:
      return Activate<Activation::kRelu6>(x);
    case Activation::kSilu:
      return Activate<Activation::kSilu>(x);
    case Activation::kGelu:
      return Activate<Activation::kGelu>(x);
  }
  return x;
}

// Channels [c, c + lanes) of `kPixels` neighbours from `pixel` on. kWhole: a whole vector of
// float32, in and out.
template <int kPixels, bool kWhole>
void DepthwiseVector(const PrunedDepthwise& job, int64_t pixel, int64_t c, int64_t lanes) {
  const int64_t in = jaxsparse::SizeOf(job.in_type), out = jaxsparse::SizeOf(job.out_type);
  Vec::Reg sum[kPixels];
  Vec::Reg bias = Vec::Zero();
  if (job.bias != nullptr) bias = Vec::LoadPartial(job.bias + c, lanes);
  for (int p = 0; p < kPixels; ++p) sum[p] = bias;
  const char* x = job.x + pixel * job.step + c * in;
  for (int64_t t = 0; t < job.taps; ++t) {
    const char* from = x + job.offsets[t];
    const float* weights = job.weights[t] + c;
    const Vec::Reg weight = kWhole ? Vec::Load(weights) : Vec::LoadPartial(weights, lanes);
    for (int p = 0; p < kPixels; ++p, from += job.step) {
      const Vec::Reg value = kWhole ? Vec::Load(reinterpret_cast<const float*>(from))
                                    : LoadElements(job.in_type, from, lanes);
      sum[p] = Vec::Fma(weight, value, sum[p]);
    }
  }
  char* to = job.out + (pixel * job.channels + c) * out;
  for (int p = 0; p < kPixels; ++p, to += job.channels * out) {
    const Vec::Reg value = ActivateAs(job.activation, sum[p]);
    if constexpr (kWhole) {
      Vec::Store(reinterpret_cast<float*>(to), value);
    } else {
      StoreOut(job.out_type, to, value, lanes);
    }
  }
}

template <int kPixels>
void DepthwisePixels(const PrunedDepthwise& job, int64_t pixel) {
  int64_t c = 0;
  if (job.in_type == DType::kF32 && job.out_type == DType::kF32) {
    for (; c + Vec::kLanes <= job.channels; c += Vec::kLanes) {
      DepthwiseVector<kPixels, true>(job, pixel, c, Vec::kLanes);
    }
  }
  for (; c < job.channels; c += Vec::kLanes) {
    const int64_t lanes = std::min<int64_t>(Vec::kLanes, job.channels - c);
    DepthwiseVector<kPixels, false>(job, pixel, c, lanes);
  }
}

void Depthwise(const PrunedDepthwise& job) {
  int64_t p = 0;
  for (; p + kNeighbours <= job.pixels; p += kNeighbours) DepthwisePixels<kNeighbours>(job, p);
  if (p + 4 <= job.pixels) {
    DepthwisePixels<4>(job, p);
    p += 4;
  }
  if (p + 2 <= job.pixels) {
    DepthwisePixels<2>(job, p);
    p += 2;
  }
  if (p < job.pixels) DepthwisePixels<1>(job, p);
}

}  // namespace
