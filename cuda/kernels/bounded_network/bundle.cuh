// A bundle's sixteen rows for a tile of 128 slots, on tensor cores, by one warp.
//
// Sixteen rows with one list of inputs are a dense matrix of 16 x entries: the left operand of an
// m16n8k8 product whose columns are slots. Float32 is kept by splitting: the leading eleven bits of
// a weight and of a value, and what is left of each, of which three of the four products count (22
// bits; two products where no weight of a step has more than eleven bits, as powers of two do).
// Sums are float32.
//
// Eight entries a step: a lane copies one slot of each block of 32, asynchronously and ahead, so
// that a line of 32 slots is one request, wherever the rows lie; from shared memory a lane's four
// slots of an input come as one 16-byte load without bank conflicts. Of an entry of a bundle and
// tile: 4 copies and 1 wide load of a warp, 4 or 6 products. In float32 multiply-adds the same tile
// takes 64 of a warp and four wide loads for an entry.
#pragma once

#include "cuda/kernels/bounded_network/state.cuh"
#include "cuda/kernels/bounded_network/tile.cuh"

namespace jaxsparse {

constexpr int kStep = 8;
constexpr int kStages = 2;
constexpr int kStageRow = kTileSlots + 8;  // floats: rows start eight banks apart

// Eight entries' inputs for the slots of a tile.
struct alignas(16) EntryStage {
  float x[kStep][kStageRow];
};

__device__ inline void CopyAsync(float* to, const float* from) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address), "l"(from) : "memory");
}

__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Returns once all but the latest kLeft groups of this thread's copies have landed.
template <int kLeft>
__device__ inline void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// The line of `input` in a slot's block: one instruction.
__device__ inline const float* LineOf(const float* slot, uint32_t input) {
  static_assert(kSlots * sizeof(float) == 128, "the instruction holds the length of a line");
  const float* at;
  asm("mad.wide.u32 %0, %1, 128, %2;" : "=l"(at) : "r"(input), "l"(slot));
  return at;
}

__device__ inline float Leading(float v) {
  return __uint_as_float(__float_as_uint(v) & 0xffffe000u);
}

__device__ inline void MultiplyTile(const float (&a)[4], float b0, float b1, float (&sum)[4]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
        "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}

// An infinity has no rest, and counts in the product of the leading parts alone. kFinite: the
// values are known to be finite or NaN.
template <bool kFinite>
__device__ inline float Finite(float v) {
  return kFinite || !isinf(v) ? Leading(v) : 0.0f;
}
template <bool kFinite>
__device__ inline float Rest(float v) {
  return kFinite || !isinf(v) ? v - Leading(v) : 0.0f;
}

// Adds eight entries' products for a block of slots: x and y are a lane's four slots of the inputs
// t and 4 + t. any: some weight of the bundle's has a rest here.
template <bool kFinite>
__device__ inline void MultiplySplit(const float (&lead)[4], const float (&rest)[4], bool any,
                                     const float4& x, const float4& y, float (&sums)[4][4]) {
  const float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) MultiplyTile(lead, Leading(xs[i]), Leading(ys[i]), sums[i]);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    MultiplyTile(lead, Rest<kFinite>(xs[i]), Rest<kFinite>(ys[i]), sums[i]);
  if (any) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      MultiplyTile(rest, Finite<kFinite>(xs[i]), Finite<kFinite>(ys[i]), sums[i]);
    }
  }
}

// A lane's sums: block, slot 4 * n + i of the block for column n of product i; of the product, the
// columns 2 t, 2 t + 1 of the rows g, g + 8.
using BundleSums = float[kTileBlocks][4][4];

template <bool kFinite, typename Index>
class BundleWarp {
 public:
  __device__ BundleWarp(const LayerView<Index>& view, const TileSources& sources,
                        EntryStage* stages)
      : view_(view), sources_(sources), stages_(stages) {}

  __device__ void Multiply(uint32_t bundle, BundleSums& sums) {
    end_ = view_.End(bundle);
    uint32_t entry = view_.Begin(bundle);
    LoadIndices(entry);
    float weights[4], next[4];
    LoadWeights(entry, weights);
#pragma unroll
    for (int s = 0; s < kStages - 1; ++s) Copy(entry + s * kStep, stages_[s]);
#pragma unroll 1
    for (int at = 0; entry < end_; entry += kStep) {
      WaitCopies<kStages - 2>();
      __syncwarp();
      LoadWeights(entry + kStep, next);
      Copy(entry + (kStages - 1) * kStep, stages_[at == 0 ? kStages - 1 : at - 1]);
      MultiplyStep(stages_[at], weights, sums);
      at = at + 1 == kStages ? 0 : at + 1;
#pragma unroll
      for (int i = 0; i < 4; ++i) weights[i] = next[i];
    }
    __syncwarp();
  }

 private:
  // The inputs of 32 entries, a lane each.
  __device__ void LoadIndices(uint32_t entry) {
    window_ = entry;
    const uint32_t mine = entry + threadIdx.x % 32;
    index_ = mine < end_ ? min(static_cast<uint32_t>(__ldg(view_.indices + mine)), view_.last) : 0;
  }

  // Of the rows lane / 4 and 8 further, the entries lane % 4 and 4 further; zeros behind the last.
  __device__ void LoadWeights(uint32_t entry, float (&weights)[4]) const {
    const uint32_t lane = threadIdx.x % 32;
    const float* const at = view_.weights + int64_t{kBundle} * (entry + lane % 4) + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool there = entry + half * kStep / 2 < end_;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        weights[2 * half + r] =
            there ? __ldg(at + half * kStep / 2 * kBundle + r * kBundle / 2) : 0.0f;
      }
    }
  }

  // Entries [entry, entry + kStep), in halves, since a bundle's are a multiple of four.
  __device__ void Copy(uint32_t entry, EntryStage& to) {
    if (entry < end_) {
      if (entry - window_ >= 32) LoadIndices(entry);
      CopyHalf(entry, to.x);
      CopyHalf(entry + kStep / 2, to.x + kStep / 2);
    }
    CommitCopies();
  }

  __device__ void CopyHalf(uint32_t entry, float (*to)[kStageRow]) const {
    const uint32_t lane = threadIdx.x % 32;
    if (entry >= end_) {
#pragma unroll
      for (int k = 0; k < kStep / 2 * kTileBlocks; ++k) {
        to[k / kTileBlocks][k % kTileBlocks * kSlots + lane] = 0.0f;
      }
      return;
    }
#pragma unroll
    for (int k = 0; k < kStep / 2; ++k) {
      const uint32_t input = __shfl_sync(~0u, index_, entry - window_ + k);
#pragma unroll
      for (int b = 0; b < kTileBlocks; ++b) {
        CopyAsync(&to[k][b * kSlots + lane], LineOf(sources_.slot[b], input));
      }
    }
  }

  __device__ void MultiplyStep(const EntryStage& stage, const float (&weights)[4],
                               BundleSums& sums) const {
    float lead[4], rest[4];
    bool any = false;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      lead[i] = Leading(weights[i]);
      rest[i] = weights[i] - lead[i];
      any |= rest[i] != 0.0f;
    }
    any = __any_sync(~0u, any);
    const uint32_t t = threadIdx.x % 4, at = threadIdx.x % 32 / 4 * 4;
#pragma unroll
    for (int b = 0; b < kTileBlocks; ++b) {
      const float4 x = *reinterpret_cast<const float4*>(&stage.x[t][b * kSlots + at]);
      const float4 y = *reinterpret_cast<const float4*>(&stage.x[4 + t][b * kSlots + at]);
      MultiplySplit<kFinite>(lead, rest, any, x, y, sums[b]);
    }
  }

  const LayerView<Index>& view_;
  const TileSources& sources_;
  EntryStage* const stages_;
  uint32_t end_ = 0, window_ = 0, index_ = 0;
};

// Which of a lane's slots are not all zero, and not all at the bound: a byte for each block.
struct BundleProbe {
  uint32_t not_zero = 0, not_upper = 0;

  // Two rows of a slot.
  __device__ void See(float y, float z, float upper, int bit) {
    if (y != 0.0f || z != 0.0f) not_zero |= 1u << bit;
    if (y != upper || z != upper) not_upper |= 1u << bit;
  }

  // To a word for each block.
  template <int kBlocks = kTileBlocks>
  __device__ void Merge(uint32_t* zero, uint32_t* full) const {
    const uint32_t shift = threadIdx.x % 4 * 8;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const uint32_t z = __reduce_or_sync(~0u, (not_zero >> (8 * b) & 255u) << shift);
      const uint32_t f = __reduce_or_sync(~0u, (not_upper >> (8 * b) & 255u) << shift);
      if (threadIdx.x % 32 == 0 && z != 0) atomicOr(zero + b, z);
      if (threadIdx.x % 32 == 0 && f != 0) atomicOr(full + b, f);
    }
  }
};

// Bounds the sums of the rows `row`, and 8 further, of a lane's bundle and stores them to the
// tile's state, its blocks `block` apart. A lane has eight slots of a row side by side, a sector;
// two lanes exchange halves, so that one instruction writes whole sectors.
template <int kBlocks>
__device__ void StoreBundle(const float (&sums)[kBlocks][4][4], const float (&bias)[2],
                            uint32_t row, float* to, int64_t block, float upper,
                            BundleProbe& probe) {
  const uint32_t t = threadIdx.x % 4, odd = t % 2;
  float* const line = to + static_cast<int64_t>(row) * kSlots + 8 * (t - odd) + 4 * odd;
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    float y[2][2][4];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        y[0][h][i] = Bound(sums[b][i][h] + bias[0], upper);
        y[1][h][i] = Bound(sums[b][i][2 + h] + bias[1], upper);
        probe.See(y[0][h][i], y[1][h][i], upper, 8 * b + 4 * h + i);
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float near[4], far[4];  // of the even lane's sector, and of the odd one's
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float mine = odd ? y[r][1][i] : y[r][0][i];
        const float theirs = __shfl_xor_sync(~0u, odd ? y[r][0][i] : y[r][1][i], 1);
        near[i] = odd ? theirs : mine;
        far[i] = odd ? mine : theirs;
      }
      float* const at = line + b * block + 8 * r * kSlots;
      *reinterpret_cast<float4*>(at) = make_float4(near[0], near[1], near[2], near[3]);
      *reinterpret_cast<float4*>(at + 8) = make_float4(far[0], far[1], far[2], far[3]);
    }
  }
}

// Every kWideWarps-th of the bundles [first, last) of a layer; `to` is the tile's state.
template <bool kFinite, typename Index>
__device__ void TileBundles(const LayerView<Index>& view, uint32_t first, uint32_t last,
                            const TileSources& sources, EntryStage* stages, float* to,
                            int64_t block, float upper, uint32_t* not_zero, uint32_t* not_upper) {
  BundleProbe probe;
  BundleWarp<kFinite, Index> warp(view, sources, stages);
  for (uint32_t u = first; u < last; u += kWideWarps) {
    BundleSums sums = {};
    const uint32_t row = u * kBundle + threadIdx.x % 32 / 4;
    const float bias[2] = {__ldg(view.bias + row), __ldg(view.bias + row + kBundle / 2)};
    warp.Multiply(u, sums);
    StoreBundle(sums, bias, row, to, block, upper, probe);
  }
  probe.Merge(not_zero, not_upper);
}

}  // namespace jaxsparse
