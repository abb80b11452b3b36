// Sums of listed rows, one instruction set a unit: columns are the lanes. A tile of tokens by
// vectors of columns stays in registers; of each row it loads the vectors once, and broadcasts a
// value for each token.
//
// Floor: the bytes of the listed rows. A token alone has one load a multiply-add; tokens together
// share the loads of a row, and multiply it where their own value is zero. Eight sums or more cover
// the latency of a multiply-add. Rows lie far apart, which no prefetcher follows: each asks for the
// row that comes `ahead` later.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/tile/ffn/isa.h"
#include "cpu/tile/load.h"

namespace {

using jaxsparse::FfnRows;

template <DType kType>
inline void StoreVector(Element<kType>* p, Vec::Reg v) {
  if constexpr (kType == DType::kF32) Vec::Store(p, v);
  if constexpr (kType == DType::kBF16) Vec::StoreBf16(p, v);
  if constexpr (kType == DType::kF16) Vec::StoreF16(p, v);
}

inline int64_t RowOf(const FfnRows& job, int64_t i) { return job.rows ? job.rows[i] : i; }

// Vectors of a tile of so many tokens: sixteen sums with 32 registers, eight with 16.
constexpr int VectorsOf(int tokens) {
  const int sums = Vec::kWideFile ? 16 : 8;
  return tokens >= sums ? 1 : sums / tokens < 8 ? sums / tokens : 8;
}

// kTokens tokens from `token` on, kCount vectors of columns from `column` on.
template <DType kType, int kTokens, int kCount>
void AddTile(const FfnRows& job, int64_t token, int64_t column) {
  const auto* w = static_cast<const Element<kType>*>(job.w) + column;
  const float* const values = job.values + token * job.value_stride;
  float* const to = job.sums + token * job.sums_stride + column;
  Vec::Reg sum[kTokens][kCount];
  for (int t = 0; t < kTokens; ++t) {
    for (int v = 0; v < kCount; ++v) {
      sum[t][v] = Vec::Load(to + t * job.sums_stride + v * Vec::kLanes);
    }
  }
  constexpr int64_t kLine = 64 / sizeof(*w);
  for (int64_t i = 0; i < job.count; ++i) {
    if (job.rows == nullptr || i + job.ahead < job.count) {
      const auto* next = w + RowOf(job, i + job.ahead) * job.stride;
      for (int64_t c = 0; c < kCount * Vec::kLanes; c += kLine) __builtin_prefetch(next + c);
    }
    const auto* row = w + RowOf(job, i) * job.stride;
    Vec::Reg weights[kCount];
    for (int v = 0; v < kCount; ++v) weights[v] = LoadVector<kType>(row + v * Vec::kLanes);
    for (int t = 0; t < kTokens; ++t) {
      const Vec::Reg value = Vec::Set(values[t * job.value_stride + i]);
      for (int v = 0; v < kCount; ++v) sum[t][v] = Vec::Fma(value, weights[v], sum[t][v]);
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    for (int v = 0; v < kCount; ++v) {
      Vec::Store(to + t * job.sums_stride + v * Vec::kLanes, sum[t][v]);
    }
  }
}

// The last columns, fewer than a vector, of one token.
template <DType kType>
void AddTail(const FfnRows& job, int64_t token, int64_t column) {
  const int64_t n = job.columns - column;
  const auto* w = static_cast<const Element<kType>*>(job.w) + column;
  const float* const values = job.values + token * job.value_stride;
  float* const to = job.sums + token * job.sums_stride + column;
  Vec::Reg sum = Vec::LoadPartial(to, n);
  for (int64_t i = 0; i < job.count; ++i) {
    const Vec::Reg row = LoadSome<kType>(w + RowOf(job, i) * job.stride, n);
    sum = Vec::Fma(Vec::Set(values[i]), row, sum);
  }
  Vec::StorePartial(to, sum, n);
}

template <DType kType, int kTokens>
void AddColumns(const FfnRows& job, int64_t token) {
  constexpr int kWide = VectorsOf(kTokens);
  int64_t column = 0;
  for (; column + kWide * Vec::kLanes <= job.columns; column += kWide * Vec::kLanes) {
    AddTile<kType, kTokens, kWide>(job, token, column);
  }
  for (; column + Vec::kLanes <= job.columns; column += Vec::kLanes) {
    AddTile<kType, kTokens, 1>(job, token, column);
  }
  if (column == job.columns) return;
  for (int t = 0; t < kTokens; ++t) AddTail<kType>(job, token + t, column);
}

template <DType kType>
void AddRowsOf(const FfnRows& job) {
  int64_t token = 0;
  if constexpr (Vec::kWideFile) {
    for (; token + 8 <= job.tokens; token += 8) AddColumns<kType, 8>(job, token);
  }
  for (; token + 4 <= job.tokens; token += 4) AddColumns<kType, 4>(job, token);
  for (; token + 2 <= job.tokens; token += 2) AddColumns<kType, 2>(job, token);
  if (token < job.tokens) AddColumns<kType, 1>(job, token);
}

void AddRows(const FfnRows& job) {
  if (job.type == DType::kBF16) return AddRowsOf<DType::kBF16>(job);
  if (job.type == DType::kF16) return AddRowsOf<DType::kF16>(job);
  AddRowsOf<DType::kF32>(job);
}

template <DType kType>
void LoadOf(const void* from, int64_t count, float* to) {
  const auto* p = static_cast<const Element<kType>*>(from);
  int64_t i = 0;
  for (; i + Vec::kLanes <= count; i += Vec::kLanes) Vec::Store(to + i, LoadVector<kType>(p + i));
  if (i < count) Vec::StorePartial(to + i, LoadSome<kType>(p + i, count - i), count - i);
}

void LoadFloats(const void* from, DType type, int64_t count, float* to) {
  if (type == DType::kBF16) return LoadOf<DType::kBF16>(from, count, to);
  if (type == DType::kF16) return LoadOf<DType::kF16>(from, count, to);
  LoadOf<DType::kF32>(from, count, to);
}

template <DType kType>
void StoreOf(const float* from, int64_t count, void* to) {
  auto* p = static_cast<Element<kType>*>(to);
  int64_t i = 0;
  for (; i + Vec::kLanes <= count; i += Vec::kLanes) StoreVector<kType>(p + i, Vec::Load(from + i));
  if (i == count) return;
  Element<kType> lanes[Vec::kLanes];
  StoreVector<kType>(lanes, Vec::LoadPartial(from + i, count - i));
  std::memcpy(p + i, lanes, (count - i) * sizeof(*p));
}

void StoreFloats(const float* from, DType type, int64_t count, void* to) {
  if (type == DType::kBF16) return StoreOf<DType::kBF16>(from, count, to);
  if (type == DType::kF16) return StoreOf<DType::kF16>(from, count, to);
  StoreOf<DType::kF32>(from, count, to);
}

}  // namespace
