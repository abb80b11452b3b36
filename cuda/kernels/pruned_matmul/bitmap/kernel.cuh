// Weights as a bitmap and their kept values, for few rows of x: every weight is read once, at its
// compressed size.
//
// Floor: at 90 / 70 / 50 % sparsity 0.325 / 0.725 / 1.125 bytes a weight (a bit each and 2 bytes a
// kept one) against 2 dense: 6.15x, 2.76x, 1.78x. A tile is 16 outputs x 64 inputs: a lane owns the
// 32 weights that it holds of the four m16n8k16 fragments of w^T: 16 neighbouring inputs of outputs
// g and g + 8, one word of the bitmap, its kept values one run in memory. So a lane expands its
// fragments alone: a bit says whether the next value is loaded. Runs are found by a prefix sum over
// the lanes' counts. A warp owns 16 outputs and streams its tiles through kStages stages of shared
// memory by cp.async; the block's x lies in shared memory. A cluster of `parts` blocks splits the
// inputs and adds its sums in rank order through distributed shared memory.
//
// Measured on an H200 against cuBLAS: 0.75x to 0.89x at 90 %, 0.57x to 0.76x at
// 70 %, 0.43x to 0.59x at 50 %: dense is faster. That instructions bound it, not bytes, is a guess.
#pragma once

#include <cstdint>

#include "cuda/kernels/pruned_matmul/fragments.cuh"

namespace jaxsparse {

inline constexpr int kBitmapInputs = 64;                    // of a tile
inline constexpr int kBitmapChunk = 512;                    // inputs of x at a time
inline constexpr int kBitmapPitch = kBitmapChunk * 2 + 16;  // bytes of a row of x

// What the launcher adds to the arguments.
struct BitmapLayout {
  int32_t tiles;        // of a strip of 16 outputs
  int32_t parts;        // blocks of a cluster, each with `part_tiles` tiles of every strip
  int32_t part_tiles;   // whole chunks
  int32_t stage_bytes;  // of the largest tile, bitmap included; a multiple of 16
};

namespace bitmap {

// Two weights of a fragment: each is the next value of the lane's run where its bit is set.
__device__ __forceinline__ uint32_t ExpandPair(uint32_t word, int pair, uint32_t& run) {
  uint32_t values;
  asm volatile(
      "{ .reg .pred p, q; .reg .b16 lo, hi; .reg .u32 t;\n"
      "and.b32 t, %2, %3; setp.ne.u32 p, t, 0; and.b32 t, %2, %4; setp.ne.u32 q, t, 0;\n"
      "mov.b16 lo, 0; mov.b16 hi, 0;\n"
      "@p ld.shared.b16 lo, [%1]; @p add.u32 %1, %1, 2;\n"
      "@q ld.shared.b16 hi, [%1]; @q add.u32 %1, %1, 2;\n"
      "mov.b32 %0, {lo, hi}; }"
      : "=r"(values), "+r"(run)
      : "r"(word), "r"(1u << 2 * pair), "r"(2u << 2 * pair));
  return values;
}

// The tiles of one warp, as they arrive: bitmap first, then the kept values. Tiles start in order.
template <int kStages>
class TileStream {
 public:
  __device__ TileStream(const PrunedArgs& args, const BitmapLayout& layout, uint32_t shared,
                        int64_t strip, int part)
      : values_(static_cast<const uint8_t*>(args.values) + threadIdx.x % 32 * 16),
        pieces_(static_cast<int>(min(args.entries / 8, int64_t{INT32_MAX}))),
        stage_bytes_(layout.stage_bytes),
        shared_(shared),
        lane_(threadIdx.x % 32) {
    const int64_t first = strip * layout.tiles + static_cast<int64_t>(part) * layout.part_tiles;
    count_ = max(0, min(layout.part_tiles, layout.tiles - part * layout.part_tiles));
    if (first + count_ >= args.num_starts) count_ = 0;
    words_ = static_cast<const uint8_t*>(args.indices) + first * 128 + lane_ % 8 * 16;
    starts_ = args.starts + first;
    if (count_ > 0) LoadStarts(0);
  }

  __device__ __forceinline__ int Count() const { return count_; }

  // Starts the copy of tile i, the next one; always closes a group.
  __device__ __forceinline__ void Start(int i) {
    if (i < count_) {
      if (i >= window_ + 31) LoadStarts(i);
      const int begin = __shfl_sync(0xffffffffu, start_, i - window_);
      const int end = __shfl_sync(0xffffffffu, start_, i - window_ + 1);
      const int length = min(end - begin, stage_bytes_ / 16 - 8);
      uint32_t to = At(i) + lane_ * 16;
      if (lane_ < 8) fragment::Copy16(to, words_, true);
      words_ += 128;
      const uint8_t* from = values_ + static_cast<int64_t>(begin) * 16;
      to += 128;
#pragma unroll 1
      for (int piece = lane_; piece < length + lane_; piece += 32, to += 512, from += 512) {
        if (piece < length) fragment::Copy16(to, from, true);
      }
    }
    fragment::Commit();
  }

  __device__ __forceinline__ uint32_t At(uint32_t i) const {
    return shared_ + i % kStages * stage_bytes_;
  }

 private:
  // Where the values of 31 tiles from tile i on begin, and the end of the last: one a lane.
  __device__ void LoadStarts(int i) {
    window_ = i;
    start_ = min(max(__ldg(starts_ + min(i + lane_, count_)), 0), pieces_);
  }

  const uint8_t* words_;
  const uint8_t* values_;
  const int32_t* starts_;
  int count_, pieces_, stage_bytes_, window_ = 0, start_ = 0;
  uint32_t shared_;
  int lane_;
  static_assert((kStages & (kStages - 1)) == 0, "a stage is picked by masking");
};

// How many bits the lanes before this one have set.
__device__ __forceinline__ uint32_t BitsBefore(uint32_t word) {
  const int lane = threadIdx.x % 32, own = __popc(word);
  int sum = own;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, sum, step);
    if (lane >= step) sum += other;
  }
  return sum - own;
}

}  // namespace bitmap

// Copies a chunk of x, its rows (padded to 8 * kBatches with zeros) a pitch apart.
template <int kBatches>
__device__ void LoadChunk(const PrunedArgs& args, uint32_t shared, int64_t first) {
  constexpr int kPieces = kBitmapChunk / 8;
  const uint8_t* x = static_cast<const uint8_t*>(args.x);
  for (int i = threadIdx.x; i < 8 * kBatches * kPieces; i += blockDim.x) {
    const int row = i / kPieces, piece = i % kPieces;
    const int64_t input = first + piece * 8;
    const bool valid = row < args.m && input < args.k;
    fragment::Copy16(shared + row * kBitmapPitch + piece * 16,
                     x + (valid ? (row * args.k + input) * 2 : 0), valid);
  }
}

// One tile: expands the lane's weights, then multiplies them with all rows of x.
template <typename T, int kBatches>
__device__ __forceinline__ void MultiplyTile(uint32_t tile, uint32_t x,
                                             float (&sums)[kBatches][4]) {
  const int lane = threadIdx.x % 32;
  const uint32_t word = fragment::Load32(tile + lane * 4);
  uint32_t run = tile + 128 + 2 * bitmap::BitsBefore(word);
  x += lane / 4 * kBitmapPitch + lane % 4 * 32;
  uint32_t a[4][4];
#pragma unroll
  for (int i = 0; i < 16; ++i) a[i / 4][i % 4] = bitmap::ExpandPair(word, i, run);
#pragma unroll
  for (int b = 0; b < kBatches; ++b) {
    const uint32_t row = x + b * 8 * kBitmapPitch;
    const uint4 low = fragment::Load128(row), high = fragment::Load128(row + 16);
    fragment::Mma<T>(sums[b], a[0], low.x, low.y);
    fragment::Mma<T>(sums[b], a[1], low.z, low.w);
    fragment::Mma<T>(sums[b], a[2], high.x, high.y);
    fragment::Mma<T>(sums[b], a[3], high.z, high.w);
  }
}

template <typename T, typename U, int kBatches, int kStages>
__global__ void __launch_bounds__(kStripWarps * 32)
    PrunedBitmap(const __grid_constant__ PrunedArgs args, const BitmapLayout layout) {
  extern __shared__ float4 memory[];
  constexpr int kChunkBytes = 8 * kBatches * kBitmapPitch;
  constexpr int kTiles = kBitmapChunk / kBitmapInputs;
  static_assert(kStages <= kTiles, "a chunk of x must land within the stages of one chunk");
  const uint32_t x = ptx::SharedAddress(memory);
  const int part = blockIdx.x % layout.parts, warp = threadIdx.x / 32;
  const int64_t group = blockIdx.x / layout.parts;
  bitmap::TileStream<kStages> stream(args, layout,
                                     x + 2 * kChunkBytes + warp * kStages * layout.stage_bytes,
                                     group * kStripWarps + warp, part);
  const int first = part * layout.part_tiles;
  const int tiles = min(layout.part_tiles, layout.tiles - first);
  const auto load = [&](int tile) {
    if (tile >= tiles) return;
    LoadChunk<kBatches>(args, x + tile / kTiles % 2 * kChunkBytes,
                        static_cast<int64_t>(first + tile) * kBitmapInputs);
  };
  load(0);
  for (int i = 0; i < kStages - 1; ++i) stream.Start(i);
  float sums[kBatches][4] = {};
#pragma unroll 1
  for (uint32_t i = 0; i < static_cast<uint32_t>(max(tiles, 0)); ++i) {
    fragment::Wait<kStages - 2>();
    if (i % kTiles == 0) {
      __syncthreads();
      load(i + kTiles);
    } else {
      __syncwarp();
    }
    stream.Start(i + kStages - 1);
    if (i < static_cast<uint32_t>(stream.Count())) {
      const uint32_t chunk = x + i / kTiles % 2 * kChunkBytes + i % kTiles * kBitmapInputs * 2;
      MultiplyTile<T, kBatches>(stream.At(i), chunk, sums);
    }
  }
  fragment::Wait<0>();
  __syncthreads();
  float* const part_sums = reinterpret_cast<float*>(memory);
  fragment::PutSums<kBatches>(sums, part_sums);
  fragment::MeetCluster();
  fragment::StoreShare<U>(args, part_sums, part, layout.parts, group * kBlockOutputs);
  fragment::MeetCluster();
}

}  // namespace jaxsparse
