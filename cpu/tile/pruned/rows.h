// The multiply of frozen weights, one instruction set a unit: pixels are the lanes, an entry of the
// weights is one broadcast and one multiply-add a vector of the window that it starts.
//
// Floor: one multiply-add an entry and vector, and two rows share no weight, so every multiply-add
// loads its vector. Measured on two cores with AVX-512 (3.7 and 3.0 GHz), first-level cache: 230
// and 179 GFLOP/s from registers, 154 and 160 where each loads its vector, 130 to 144 and 142 where
// weights and windows are loaded too, 12 vectors an entry. Predicted for whole layers: 0.2 ns a
// vector, 0.4 an entry, 3.1 a row and block and 0.77 a vector of its sums
// (jaxsparse/pruned/strips.py); measured within 7 % of it, 80 to 110 GFLOP/s.
#pragma once

#include <cstdint>

#include "cpu/tile/pruned/isa.h"

namespace {

using jaxsparse::kPrunedLanes;
using jaxsparse::PrunedRows;

constexpr int kMaxSums = Vec::kWideFile ? 14 : 12;

// Sums that entries are added to in turn: with one or two vectors, every entry would wait for the
// multiply-add of the one before it.
constexpr int TurnsOf(int sums) { return sums > 2 ? 1 : 4 / sums; }

template <int kSums>
inline void AddEntry(const PrunedRows& job, const float* panel, int64_t e, Vec::Reg* sum) {
  const int64_t start = job.windows[e];
  const float* window = panel + (start < job.last_window ? start : job.last_window);
  const Vec::Reg weight = Vec::Set(job.values[e]);
  for (int v = 0; v < kSums; ++v) {
    sum[v] = Vec::Fma(weight, Vec::Load(window + v * Vec::kLanes), sum[v]);
  }
}

template <int kSums>
void MultiplyChunk(const PrunedRows& job, int64_t first) {
  constexpr int kTurns = TurnsOf(kSums);
  const float* panel = job.panel + first * Vec::kLanes;
  for (int64_t i = 0; i < job.count; ++i) {
    const int32_t row = job.rows[i], slot = job.slots[i];
    if (slot < 0) continue;
    const int64_t begin = job.starts[row] < 0 ? 0 : job.starts[row];
    const int64_t end = job.ends[row] < job.entries ? job.ends[row] : job.entries;
    if (begin >= end && !job.first) continue;
    float* sums = job.sums + slot * job.sums_stride + first * Vec::kLanes;
    Vec::Reg sum[kTurns][kSums];
    const Vec::Reg bias = job.bias != nullptr ? Vec::Set(job.bias[row]) : Vec::Zero();
    for (int v = 0; v < kSums; ++v) {
      sum[0][v] = job.first ? bias : Vec::Load(sums + v * Vec::kLanes);
      for (int t = 1; t < kTurns; ++t) sum[t][v] = Vec::Zero();
    }
    int64_t e = begin;
    if constexpr (kTurns > 1) {
      for (; e + kTurns <= end; e += kTurns) {
        for (int t = 0; t < kTurns; ++t) AddEntry<kSums>(job, panel, e + t, sum[t]);
      }
    }
    for (; e < end; ++e) AddEntry<kSums>(job, panel, e, sum[0]);
    for (int v = 0; v < kSums; ++v) {
      for (int t = 1; t < kTurns; ++t) sum[0][v] = Vec::Add(sum[0][v], sum[t][v]);
      Vec::Store(sums + v * Vec::kLanes, sum[0][v]);
    }
  }
}

template <int kSums>
void MultiplyUpTo(const PrunedRows& job, int64_t first, int64_t count) {
  if constexpr (kSums > 0) {
    if (count == kSums) return MultiplyChunk<kSums>(job, first);
    MultiplyUpTo<kSums - 1>(job, first, count);
  }
}

// The tile's vectors in equal chunks that fit the register file.
void MultiplyRows(const PrunedRows& job) {
  const int64_t total = job.vectors * (kPrunedLanes / Vec::kLanes);
  const int64_t chunks = (total + kMaxSums - 1) / kMaxSums;
  for (int64_t first = 0, c = 0; c < chunks; ++c) {
    const int64_t count = (total - first + chunks - c - 1) / (chunks - c);
    MultiplyUpTo<kMaxSums>(job, first, count);
    first += count;
  }
}

}  // namespace
