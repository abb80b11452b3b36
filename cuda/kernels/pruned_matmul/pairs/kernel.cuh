// Weights as a bitmap of pairs and the pairs, for few rows of x: every weight is read once, at its
// compressed size.
//
// A register of a fragment of w^T holds two neighbouring inputs of an output: a pair that keeps
// either is stored whole, 4 bytes, and a bit says so. Expanding a register is one predicated load.
// Floor: with random places and sparsity s 0.0625 + 2 (1 - s^2) bytes a weight: 0.44 / 1.08 / 1.56
// at 90 / 70 / 50 % against 2 dense: 4.5x, 1.85x, 1.28x. A tile is 16 outputs x 128 inputs: a lane
// owns the 32 registers that it holds of the eight m16n8k16 fragments, 16 neighbouring inputs of
// outputs g and g + 8 in each half: one word of the bitmap, its pairs one run in memory. Runs are
// found by a prefix sum over the lanes' counts, two tiles at once. An item is kTiles tiles; a
// stage, of kStages in shared memory, an item of each of 8 warps (16 outputs each) and its inputs
// of x, filled by cp.async. A cluster of `parts` blocks splits the inputs.
//
// Measured on an H200 against cuBLAS, weights not in L2: 1.3x and 1.7x (1 row), 1.05x and 1.45x (16
// rows) at 90 % (4096 and 8192 inputs and outputs), 0.9x and 1.1x at 70 %, 0.8x and 0.9x at 50 %.
// The time grows with the pairs as the bank conflicts of their loads do, counted for random banks.
//
// About 4.5 instructions a register. The address of the next pair goes to another register than
// that of the last one: a load that is under way keeps its address register busy.
#pragma once

#include <cstdint>

#include "cuda/kernels/pruned_matmul/fragments.cuh"

namespace jaxsparse {

inline constexpr int kPairTileInputs = 128;

// What the launcher adds to the arguments.
struct PairsLayout {
  int32_t items;  // of a strip of 16 outputs
  int32_t parts;  // blocks of a cluster, each with `part_items` items of every strip
  int32_t part_items;
  int32_t item_bytes;  // of the largest item, its words included; a multiple of 16
};

namespace pairs {

// A register of a fragment: the next pair of the lane's run where its bit is set, else zeros. The
// run moves to another register: overwriting the address of a load means waiting for it.
__device__ __forceinline__ uint32_t ExpandPair(uint32_t word, int bit, uint32_t& run) {
  uint32_t pair, next;
  asm("{ .reg .pred p; .reg .u32 t;\n"
      "and.b32 t, %3, %4; setp.ne.u32 p, t, 0; mov.b32 %0, 0;\n"
      "@p ld.shared.b32 %0, [%2]; selp.u32 t, 4, 0, p; add.u32 %1, %2, t; }"
      : "=&r"(pair), "=&r"(next)
      : "r"(run), "r"(word), "r"(1u << bit));
  run = next;
  return pair;
}

// The items of one warp: their words, then their pairs.
template <int kTiles, int kStages>
class ItemStream {
 public:
  static constexpr int kWordBytes = kTiles * 128;

  __device__ ItemStream(const PrunedArgs& args, const PairsLayout& layout, uint32_t shared,
                        uint32_t stride, int64_t strip, int part)
      : pieces_(static_cast<int>(min(args.entries / 8, int64_t{INT32_MAX}))),
        most_((layout.item_bytes - kWordBytes) / 16),
        shared_(shared),
        stride_(stride),
        lane_(threadIdx.x % 32) {
    const int64_t first = strip * layout.items + static_cast<int64_t>(part) * layout.part_items;
    count_ = max(0, min(layout.part_items, layout.items - part * layout.part_items));
    if (first + count_ >= args.num_starts) count_ = 0;
    words_ = static_cast<const uint8_t*>(args.indices) + first * kWordBytes + lane_ * 16;
    values_ = static_cast<const uint8_t*>(args.values) + lane_ * 16;
    starts_ = args.starts + first;
    if (count_ > 0) LoadStarts(0);
  }

  __device__ __forceinline__ int Count() const { return count_; }

  // Starts the copy of item i, the next one.
  __device__ __forceinline__ void Start(int i) {
    if (i >= count_) return;
    if (i >= window_ + 31) LoadStarts(i);
    uint32_t to = At(i) + lane_ * 16;
#pragma unroll
    for (int w = 0; w < kWordBytes; w += 512) {
      if (w + lane_ * 16 < kWordBytes) fragment::Copy16(to + w, words_ + w, true);
    }
    words_ += kWordBytes;
    const int begin = __shfl_sync(0xffffffffu, start_, i - window_);
    const int end = __shfl_sync(0xffffffffu, start_, i - window_ + 1);
    const int length = min(end - begin, most_);
    const uint8_t* from = values_ + static_cast<int64_t>(begin) * 16;
    to += kWordBytes;
#pragma unroll 4
    for (int piece = lane_; piece < length; piece += 32, to += 512, from += 512) {
      fragment::Copy16(to, from, true);
    }
  }

  __device__ __forceinline__ uint32_t At(uint32_t i) const {
    return shared_ + i % kStages * stride_;
  }

 private:
  // Where 31 items from item i on begin, and the end of the last: one a lane.
  __device__ void LoadStarts(int i) {
    window_ = i;
    start_ = min(max(__ldg(starts_ + min(i + lane_, count_)), 0), pieces_);
  }

  const uint8_t* words_;
  const uint8_t* values_;
  const int32_t* starts_;
  int count_, pieces_, most_, window_ = 0, start_ = 0;
  uint32_t shared_, stride_;
  int lane_;
};

// Where the lane's run of each tile begins, in pairs: counts of two tiles share a register.
template <int kTiles>
__device__ __forceinline__ void FindRuns(const uint32_t (&words)[kTiles],
                                         uint32_t (&runs)[kTiles]) {
  const int lane = threadIdx.x % 32;
  uint32_t before = 0;
#pragma unroll
  for (int t = 0; t < kTiles; t += 2) {
    const uint32_t own =
        __popc(words[t]) | (t + 1 < kTiles ? __popc(words[(t + 1) % kTiles]) << 16 : 0);
    uint32_t sum = own;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const uint32_t other = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += other;
    }
    const uint32_t all = __shfl_sync(0xffffffffu, sum, 31);
    sum -= own;
    runs[t] = before + (sum & 0xffff);
    before += all & 0xffff;
    if (t + 1 < kTiles) {
      runs[(t + 1) % kTiles] = before + (sum >> 16);
      before += all >> 16;
    }
  }
}

}  // namespace pairs

// Copies an item's inputs of x, its rows (padded to 8 * kBatches with zeros) a pitch apart.
template <int kBatches, int kTiles>
__device__ __forceinline__ void LoadInputs(const PrunedArgs& args, uint32_t shared, int64_t first) {
  constexpr int kPieces = kTiles * kPairTileInputs / 8, kPitch = kTiles * kPairTileInputs * 2 + 16;
  const uint8_t* x = static_cast<const uint8_t*>(args.x);
  for (int i = threadIdx.x; i < 8 * kBatches * kPieces; i += kStripWarps * 32) {
    const int row = i / kPieces, piece = i % kPieces;
    const int64_t input = first + piece * 8;
    const bool valid = row < args.m && input < args.k;
    fragment::Copy16(shared + row * kPitch + piece * 16,
                     x + (valid ? (row * args.k + input) * 2 : 0), valid);
  }
}

// One tile: expands the lane's weights, then multiplies them with all rows of x.
template <typename T, int kBatches, int kPitch>
__device__ __forceinline__ void MultiplyTile(uint32_t word, uint32_t run, uint32_t x,
                                             float (&sums)[2][kBatches][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t a[4][4];
#pragma unroll
    for (int i = 0; i < 16; ++i) a[i / 4][i % 4] = pairs::ExpandPair(word, half * 16 + i, run);
#pragma unroll
    for (int b = 0; b < kBatches; ++b) {
      const uint32_t row = x + b * 8 * kPitch + half * 128;
      const uint4 low = fragment::Load128(row), high = fragment::Load128(row + 16);
      fragment::Mma<T>(sums[0][b], a[0], low.x, low.y);
      fragment::Mma<T>(sums[1][b], a[1], low.z, low.w);
      fragment::Mma<T>(sums[0][b], a[2], high.x, high.y);
      fragment::Mma<T>(sums[1][b], a[3], high.z, high.w);
    }
  }
}

// An item of the warp: `item` its words and pairs, at most `most`, `x` its inputs.
template <typename T, int kBatches, int kTiles>
__device__ __forceinline__ void MultiplyItem(uint32_t item, uint32_t most, uint32_t x,
                                             float (&sums)[2][kBatches][4]) {
  constexpr int kPitch = kTiles * kPairTileInputs * 2 + 16;
  const int lane = threadIdx.x % 32;
  uint32_t words[kTiles], runs[kTiles];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) words[t] = fragment::Load32(item + t * 128 + lane * 4);
  pairs::FindRuns(words, runs);
  x += lane / 4 * kPitch + lane % 4 * 32;
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    MultiplyTile<T, kBatches, kPitch>(words[t], item + kTiles * 128 + 4 * min(runs[t], most),
                                      x + t * 256, sums);
  }
}

// Stage: an item of each warp, and its inputs of x.
template <typename T, int kBatches, int kTiles, int kStages>
__global__ void __launch_bounds__(kStripWarps * 32)
    PrunedPairs(const __grid_constant__ PrunedArgs args, const PairsLayout layout) {
  extern __shared__ float4 memory[];
  constexpr int kInputs = kTiles * kPairTileInputs, kXBytes = 8 * kBatches * (kInputs * 2 + 16);
  const uint32_t shared = ptx::SharedAddress(memory);
  const uint32_t stage_bytes = kXBytes + kStripWarps * layout.item_bytes;
  const int part = blockIdx.x % layout.parts, warp = threadIdx.x / 32;
  const int64_t group = blockIdx.x / layout.parts;
  pairs::ItemStream<kTiles, kStages> stream(args, layout,
                                            shared + kXBytes + warp * layout.item_bytes,
                                            stage_bytes, group * kStripWarps + warp, part);
  const int first = part * layout.part_items;
  const uint32_t items = max(0, min(layout.part_items, layout.items - first));
  const auto start = [&](uint32_t i) {
    if (i < items) {
      stream.Start(i);
      LoadInputs<kBatches, kTiles>(args, shared + i % kStages * stage_bytes,
                                   static_cast<int64_t>(first + i) * kInputs);
    }
    fragment::Commit();
  };
  for (int i = 0; i < kStages - 1; ++i) start(i);
  const uint32_t most = (layout.item_bytes - kTiles * 128) / 4;
  float sums[2][kBatches][4] = {};
#pragma unroll 1
  for (uint32_t i = 0; i < items; ++i) {
    fragment::Wait<kStages - 2>();
    __syncthreads();
    start(i + kStages - 1);
    if (i < static_cast<uint32_t>(stream.Count())) {
      MultiplyItem<T, kBatches, kTiles>(stream.At(i), most, shared + i % kStages * stage_bytes,
                                        sums);
    }
  }
  fragment::Wait<0>();
  __syncthreads();
  float* const part_sums = reinterpret_cast<float*>(memory);
#pragma unroll
  for (int i = 0; i < 4 * kBatches; ++i) sums[0][i / 4][i % 4] += sums[1][i / 4][i % 4];
  fragment::PutSums<kBatches>(sums[0], part_sums);
  fragment::MeetCluster();
  if (args.out_type == DType::kF32) {
    fragment::StoreShare<float>(args, part_sums, part, layout.parts, group * kBlockOutputs);
  } else {
    fragment::StoreShare<T>(args, part_sums, part, layout.parts, group * kBlockOutputs);
  }
  fragment::MeetCluster();
}

}  // namespace jaxsparse
