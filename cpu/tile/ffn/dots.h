// Dot products of listed rows of a matrix with a few vectors, one instruction set a unit: lanes are
// places of the sum.
//
// Floor: the bytes of the listed rows. A tile of tokens shares the loads of a row; eight sums or
// more cover the latency of a multiply-add. While a row is read the next one is asked for: listed
// rows are streams of a few pages, at whose ends the hardware stops asking.
#pragma once

#include <cstdint>

#include "cpu/tile/ffn/isa.h"
#include "cpu/tile/ffn/rows.h"

namespace {

// The sum of a register's lanes, in pairs.
inline float SumOfLanes(Vec::Reg v) {
  float lanes[Vec::kLanes];
  Vec::Store(lanes, v);
  for (int half = Vec::kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// Row `i` of the list with kTokens tokens from `token` on: kTurns sums each, added at the end.
template <DType kType, int kTokens>
void DotRow(const FfnRows& job, int64_t token, int64_t i) {
  constexpr int kTurns = kTokens >= 8 ? 1 : 8 / kTokens;
  const auto* row = static_cast<const Element<kType>*>(job.w) + RowOf(job, i) * job.stride;
  const int64_t after = i + 1 < job.count ? RowOf(job, i + 1) : RowOf(job, i);
  const auto* next = static_cast<const Element<kType>*>(job.w) + after * job.stride;
  const float* const values = job.values + token * job.value_stride;
  constexpr int64_t kLine = 64 / sizeof(*row), kStep = kTurns * Vec::kLanes;
  Vec::Reg sum[kTokens][kTurns];
  for (auto& turns : sum) {
    for (Vec::Reg& each : turns) each = Vec::Zero();
  }
  int64_t c = 0;
  for (; c + kStep <= job.columns; c += kStep) {
    for (int64_t line = 0; line < kStep; line += kLine) __builtin_prefetch(next + c + line);
    for (int turn = 0; turn < kTurns; ++turn) {
      const int64_t at = c + turn * Vec::kLanes;
      const Vec::Reg weights = LoadVector<kType>(row + at);
      for (int t = 0; t < kTokens; ++t) {
        const Vec::Reg x = Vec::Load(values + t * job.value_stride + at);
        sum[t][turn] = Vec::Fma(x, weights, sum[t][turn]);
      }
    }
  }
  for (int64_t n; c < job.columns; c += n) {
    n = job.columns - c < Vec::kLanes ? job.columns - c : Vec::kLanes;
    const Vec::Reg weights = LoadSome<kType>(row + c, n);
    for (int t = 0; t < kTokens; ++t) {
      const Vec::Reg x = Vec::LoadPartial(values + t * job.value_stride + c, n);
      sum[t][0] = Vec::Fma(x, weights, sum[t][0]);
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    for (int turn = 1; turn < kTurns; ++turn) sum[t][0] = Vec::Add(sum[t][0], sum[t][turn]);
    job.sums[(token + t) * job.sums_stride + RowOf(job, i)] = SumOfLanes(sum[t][0]);
  }
}

template <DType kType>
void DotRowsOf(const FfnRows& job) {
  for (int64_t i = 0; i < job.count; ++i) {
    int64_t token = 0;
    if constexpr (Vec::kWideFile) {
      for (; token + 8 <= job.tokens; token += 8) DotRow<kType, 8>(job, token, i);
    }
    for (; token + 4 <= job.tokens; token += 4) DotRow<kType, 4>(job, token, i);
    for (; token + 2 <= job.tokens; token += 2) DotRow<kType, 2>(job, token, i);
    if (token < job.tokens) DotRow<kType, 1>(job, token, i);
  }
}

void DotRows(const FfnRows& job) {
  if (job.type == DType::kBF16) return DotRowsOf<DType::kBF16>(job);
  if (job.type == DType::kF16) return DotRowsOf<DType::kF16>(job);
  DotRowsOf<DType::kF32>(job);
}

}  // namespace
