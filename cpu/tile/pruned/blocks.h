// Change of layout for frozen weights, one instruction set a unit: 16 pixels x 16 channels become
// 16 rows of a panel on the way in, 16 rows of sums become pixels on the way out.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/tile/conv/elements.h"
#include "cpu/tile/pruned/isa.h"

namespace {

using jaxsparse::PrunedBlock;
using jaxsparse::PrunedRun;
using jaxsparse::PrunedStore;

Vec::Reg LoadAs(DType type, const char* source, int64_t channel, int64_t count) {
  if (type == DType::kF32) {
    const float* from = reinterpret_cast<const float*>(source) + channel;
    return count >= Vec::kLanes ? Vec::Load(from) : Vec::LoadPartial(from, count);
  }
  const uint16_t* from = reinterpret_cast<const uint16_t*>(source) + channel;
  uint16_t part[Vec::kLanes] = {};
  if (count < Vec::kLanes) {
    std::memcpy(part, from, static_cast<size_t>(count) * sizeof(uint16_t));
    from = part;
  }
  return type == DType::kBF16 ? Vec::LoadBf16(from) : Vec::LoadF16(from);
}

// One square: `count` channels of kTransposeSide pixels. A full square of float32 is the fast way.
template <bool kFull>
void LoadSquare(const PrunedBlock& block, int64_t c, int64_t l, int64_t count) {
  Vec::Reg rows[kTransposeSide];
#pragma GCC unroll 16
  for (int i = 0; i < kTransposeSide; ++i) {
    const char* source = block.sources[l + i];
    if constexpr (kFull) {
      rows[i] = Vec::Load(reinterpret_cast<const float*>(source) + block.channel + c);
    } else {
      rows[i] = LoadAs(block.type, source, block.channel + c, count);
    }
  }
  TransposeSquare(rows);
  float* to = block.panel + c * block.stride + l;
#pragma GCC unroll 16
  for (int i = 0; i < kTransposeSide; ++i) {
    if (kFull || i < count) Vec::Store(to + i * block.stride, rows[i]);
  }
}

void LoadBlock(const PrunedBlock& block) {
  for (int64_t c = 0; c < block.channels; c += kTransposeSide) {
    const int64_t count = block.channels - c < kTransposeSide ? block.channels - c : kTransposeSide;
    const bool full = count == kTransposeSide && block.type == DType::kF32;
    for (int64_t l = 0; l < jaxsparse::kPrunedLanes; l += kTransposeSide) {
      if (full) {
        LoadSquare<true>(block, c, l, count);
      } else {
        LoadSquare<false>(block, c, l, count);
      }
    }
  }
}

// Step 1: whole vectors. Another step: element by element.
void LoadRun(const PrunedRun& run) {
  constexpr int64_t kLanes = Vec::kLanes;
  const int64_t size = jaxsparse::SizeOf(run.type);
  if (run.step == 1) {
    int64_t i = 0;
    for (; i + kLanes <= run.count; i += kLanes) {
      Vec::Store(run.to + i, LoadAs(run.type, run.source, i, kLanes));
    }
    if (i < run.count) {
      Vec::StorePartial(run.to + i, LoadAs(run.type, run.source, i, run.count - i), run.count - i);
    }
    return;
  }
  if (run.type == DType::kF32) {
    const float* source = reinterpret_cast<const float*>(run.source);
    for (int64_t i = 0; i < run.count; ++i) run.to[i] = source[i * run.step];
    return;
  }
  for (int64_t i = 0; i < run.count; i += kLanes) {
    const int64_t count = run.count - i < kLanes ? run.count - i : kLanes;
    alignas(64) char gathered[kLanes * sizeof(float)];
    for (int64_t l = 0; l < count; ++l) {
      std::memcpy(gathered + l * size, run.source + (i + l) * run.step * size,
                  static_cast<size_t>(size));
    }
    Vec::StorePartial(run.to + i, LoadAs(run.type, gathered, 0, count), count);
  }
}

void TransposeBlock(const float* from, int64_t stride, float* to) {
  for (int64_t c = 0; c < jaxsparse::kPrunedLanes; c += kTransposeSide) {
    for (int64_t l = 0; l < jaxsparse::kPrunedLanes; l += kTransposeSide) {
      Vec::Reg rows[kTransposeSide];
#pragma GCC unroll 16
      for (int i = 0; i < kTransposeSide; ++i) rows[i] = Vec::Load(from + (c + i) * stride + l);
      TransposeSquare(rows);
#pragma GCC unroll 16
      for (int i = 0; i < kTransposeSide; ++i) {
        Vec::Store(to + (l + i) * jaxsparse::kPrunedLanes + c, rows[i]);
      }
    }
  }
}

// 16 x 16 sums, activated.
template <Activation kActivation>
void ActivateBlock(const float* from, int64_t stride, float* to) {
  for (int64_t c = 0; c < jaxsparse::kPrunedLanes; ++c) {
    for (int64_t l = 0; l < jaxsparse::kPrunedLanes; l += Vec::kLanes) {
      Vec::Store(to + c * jaxsparse::kPrunedLanes + l,
                 Activate<kActivation>(Vec::Load(from + c * stride + l)));
    }
  }
}

// `sums` and `stride` are parameters of their own, not in a changed copy of the block: the copy's
// fields would be loaded before the stores that make it are done.
template <bool kRelu>
void StoreSquares(const PrunedStore& block, const float* sums, int64_t stride) {
  for (int64_t c = 0; c < block.width; c += kTransposeSide) {
    const int64_t count = block.width - c;
    for (int64_t l = 0; l < jaxsparse::kPrunedLanes; l += kTransposeSide) {
      Vec::Reg rows[kTransposeSide];
      const float* from = sums + c * stride + l;
#pragma GCC unroll 16
      for (int i = 0; i < kTransposeSide; ++i) {
        rows[i] = Vec::Load(from + i * stride);
        if constexpr (kRelu) rows[i] = Vec::Max(Vec::Zero(), rows[i]);
      }
      TransposeSquare(rows);
#pragma GCC unroll 16
      for (int i = 0; i < kTransposeSide; ++i) {
        if (block.pixels[l + i] == nullptr) continue;
        float* to = block.pixels[l + i] + block.channel + c;
        if (count >= kTransposeSide) {
          Vec::Store(to, rows[i]);
        } else {
          Vec::StorePartial(to, rows[i], count);
        }
      }
    }
  }
}

void StoreBlock(const PrunedStore& block) {
  alignas(64) float activated[jaxsparse::kPrunedLanes * jaxsparse::kPrunedLanes];
  switch (block.activation) {
    case Activation::kNone:
      return StoreSquares<false>(block, block.from, block.stride);
    case Activation::kRelu:
      return StoreSquares<true>(block, block.from, block.stride);
    case Activation::kRelu6:
      ActivateBlock<Activation::kRelu6>(block.from, block.stride, activated);
      break;
    case Activation::kSilu:
      ActivateBlock<Activation::kSilu>(block.from, block.stride, activated);
      break;
    case Activation::kGelu:
      ActivateBlock<Activation::kGelu>(block.from, block.stride, activated);
      break;
  }
  StoreSquares<false>(block, activated, jaxsparse::kPrunedLanes);
}

}  // namespace
