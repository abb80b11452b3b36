// A product of float32 whose inputs are split over a cluster, for tens to thousands of rows of x:
// every block serves a tile of rows, a range of the inputs and a run of outputs.
//
// Floor: a product reads a float of shared memory: 32 products a cycle and multiprocessor; a quad
// of entries is 4 * rows-of-a-lane wavefronts and 2 of its own. Bytes: x once for each group of
// outputs, y once, 6 bytes a kept weight for each tile of rows, nearly all from the second-level
// cache.
//
// Tile: 32 * kRows rows x kInputs inputs of x, in shared memory by row; the pitch is odd, so that
// neither the lanes of a load (32 rows of an input) nor those of the fill (4 rows, 8 pieces of 16
// bytes) have bank conflicts. A lane's accumulators are kRows rows of one output; a warp takes its
// outputs one after the other, as a stream of quads that comes by 16 through a ring (`cp.async`).
// Every block of a cluster finishes a share of the tile's rows: sums go to the shared memory of the
// block that they belong to as soon as they are known; after a round of outputs the cluster
// synchronises, and each block adds up what came, in rank order, and stores whole lines. They lie
// twice, so that one synchronisation a round is enough.
//
// Predicted for 392 rows, 1024 x 1024, 90 %, on an H200: 6.2 us of products and about 3.5 of
// launch, fill and sums. Measured 17.1. A model fitted to 90 measurements (error 6 %) says why: 112
// blocks serve tiles that are 88 % full, in one turn; of its 18.5 us 12.3 are products (10.3 at the
// rate of shared memory), 1.8 the sums, 1.8 the meetings of two rounds, 0.8 the fill, and 1.8
// launch, first loads and end.
#pragma once

#include <cstdint>

#include "cuda/core/cluster_begin.cuh"
#include "cuda/core/element.cuh"
#include "cuda/core/overlap.cuh"
#include "cuda/kernels/pruned_matmul/fragments.cuh"
#include "cuda/tile/pruned_args.h"

namespace jaxsparse {

inline constexpr int kSplitWarps = 32, kSplitThreads = 32 * kSplitWarps;
inline constexpr int kSplitStage = 16;  // quads of a warp's stage
inline constexpr int kQuadBytes = 24;   // four floats and four places

// What the launcher adds to the arguments.
struct SplitLayout {
  int32_t parts;    // blocks of a cluster, a range of the inputs each
  int32_t groups;   // of outputs
  int32_t outputs;  // of a round
  int32_t rounds;   // of a group
  int32_t share;    // rows of the tile that a block finishes
  uint32_t quads;   // in all

  // Floats of a round's sums in a block: of every part and output the share's rows side by side, so
  // that they travel together, and outputs an odd number apart.
  __host__ __device__ int Pitch() const { return share | 1; }
  __host__ __device__ int RoundFloats() const { return parts * outputs * Pitch(); }
};

template <int kRows_, int kInputs_>
struct SplitConfig {
  static constexpr int kRows = kRows_;      // of a lane
  static constexpr int kInputs = kInputs_;  // of a block
  static constexpr int kTile = 32 * kRows, kPitch = kInputs + 1;
  static constexpr int kPanelBytes = (kTile * kPitch * 4 + 15) / 16 * 16;
  static constexpr int kRingBytes = 2 * kSplitStage * kQuadBytes * kSplitWarps;
  static int SharedBytes(const SplitLayout& layout) {
    return kPanelBytes + kRingBytes + 2 * layout.RoundFloats() * 4;
  }
};

namespace split {

// Fills the panel: kTile rows of the block's inputs, zeros where there are none, and a zero behind
// each row, at which padding points. So many pieces of 16 bytes a thread are under way at once.
template <class Config>
class PanelFill {
 public:
  static constexpr int kGroups = Config::kInputs / 32;  // of 8 pieces, of a row
  static constexpr int kItems = Config::kTile / 4 * kGroups / kSplitWarps;
  static constexpr int kAtOnce = kItems < 8 ? kItems : 8, kTurns = kItems / kAtOnce;

  __device__ PanelFill(const PrunedArgs& args, float* panel, int64_t first_row, int64_t first)
      : args_(args), panel_(panel), first_row_(first_row), first_(first) {}

  __device__ __forceinline__ void Load(int turn) {
    const float* const x = static_cast<const float*>(args_.x);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t row = first_row_ + Row(turn, i), input = first_ + Input(turn, i);
      loaded_[i] = {0.0f, 0.0f, 0.0f, 0.0f};
      if (row < args_.m && input < args_.k) {
        loaded_[i] = __ldg(reinterpret_cast<const float4*>(x + row * args_.k + input));
      }
    }
  }

  __device__ __forceinline__ void Store(int turn) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      float* const to = panel_ + Row(turn, i) * Config::kPitch + Input(turn, i);
      to[0] = loaded_[i].x, to[1] = loaded_[i].y, to[2] = loaded_[i].z, to[3] = loaded_[i].w;
    }
    if (threadIdx.x < Config::kTile) {
      panel_[threadIdx.x * Config::kPitch + Config::kInputs] = 0.0f;
    }
  }

 private:
  static __device__ __forceinline__ int Item(int turn, int i) {
    return (turn * kAtOnce + i) * kSplitWarps + threadIdx.x / 32;
  }
  static __device__ __forceinline__ int Row(int turn, int i) {
    return Item(turn, i) / kGroups * 4 + threadIdx.x % 32 / 8;
  }
  static __device__ __forceinline__ int Input(int turn, int i) {
    return Item(turn, i) % kGroups * 32 + threadIdx.x % 8 * 4;
  }

  const PrunedArgs& args_;
  float* panel_;
  int64_t first_row_, first_;
  float4 loaded_[kAtOnce];
};

// Four entries of an output. A place, in 11 bits, is the byte at which the entry's input lies in a
// row: bits 0 and 21 up of each word. Bit 11 of the first says that the quad is its output's last,
// bits 11 to 18 of the second which of the round's outputs that is.
struct Quad {
  float4 values;
  uint2 places;

  __device__ __forceinline__ bool Last() const { return places.x & 0x800u; }
  __device__ __forceinline__ uint32_t Output() const { return places.y >> 11 & 0xffu; }
};

// A warp's quads, one after the other, by way of a ring of two stages.
class QuadStream {
 public:
  __device__ QuadStream(const PrunedArgs& args, const SplitLayout& layout, uint32_t ring,
                        uint32_t start)
      : values_(static_cast<const float4*>(args.values)),
        places_(static_cast<const uint2*>(args.indices)),
        last_(layout.quads - 1),
        next_(min(start, last_) & ~1u),
        ring_(ring + threadIdx.x / 32 * (2 * kSplitStage * kQuadBytes)) {
    Fetch(0);
  }

  // Quads that may be taken, of so many, before the next turn.
  __device__ __forceinline__ int Ready(int wanted) {
    if (at_ % kSplitStage == 0) Turn();
    return min(wanted, static_cast<int>(kSplitStage - at_ % kSplitStage));
  }

  // The quad `ahead` of the present one, of those that are ready.
  __device__ __forceinline__ Quad Peek(uint32_t ahead) const {
    const uint32_t at = at_ % (2 * kSplitStage) + ahead;
    const uint4 v = fragment::Load128(ring_ + at * 16);
    Quad found;
    found.values = {__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z),
                    __uint_as_float(v.w)};
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                 : "=r"(found.places.x), "=r"(found.places.y)
                 : "r"(ring_ + 2 * kSplitStage * 16 + at * 8));
    return found;
  }

  __device__ __forceinline__ void Pass(int quads) { at_ += quads; }

 private:
  // The next quads into one of the stages; past the arrays' end some from within.
  __device__ __forceinline__ void Fetch(uint32_t stage) {
    const uint32_t lane = threadIdx.x % 32, first = stage * kSplitStage;
    if (lane < kSplitStage) {
      fragment::Copy16(ring_ + (first + lane) * 16, values_ + min(next_ + lane, last_), true);
    }
    if (lane < kSplitStage / 2) {
      const uint32_t pair = min(next_ + lane * 2, (last_ - 1) & ~1u);
      fragment::Copy16(ring_ + 2 * kSplitStage * 16 + (first + lane * 2) * 8, places_ + pair, true);
    }
    fragment::Commit();
    next_ += kSplitStage;
  }

  __device__ __forceinline__ void Turn() {
    __syncwarp();  // the other stage was read to its end
    Fetch(at_ / kSplitStage % 2 ^ 1);
    fragment::Wait<1>();
    __syncwarp();
  }

  const float4* values_;
  const uint2* places_;
  uint32_t last_, next_, ring_;
  uint32_t at_ = 0;
};

// Products of a quad with the lane's rows, whose first begins at `rows`.
template <class Config>
__device__ __forceinline__ void MultiplyQuad(const Quad& quad, uint32_t rows,
                                             float (&sums)[Config::kRows]) {
  constexpr uint32_t kPlace = 0x7fcu;  // whole floats, whatever the arrays say
  const float values[4] = {quad.values.x, quad.values.y, quad.values.z, quad.values.w};
  const uint32_t at[4] = {rows + (quad.places.x & kPlace), rows + (quad.places.x >> 21 & kPlace),
                          rows + (quad.places.y & kPlace), rows + (quad.places.y >> 21 & kPlace)};
#pragma unroll
  for (int e = 0; e < 4; ++e) {
#pragma unroll
    for (int r = 0; r < Config::kRows; ++r) {
      float x;
      asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(at[e] + r * 128 * Config::kPitch));
      sums[r] = fmaf(x, values[e], sums[r]);
    }
  }
}

// Where a lane's sums go: into the block that finishes their row.
template <class Config>
class SumsOut {
 public:
  __device__ SumsOut(const SplitLayout& layout, float* sums, int part) {
#pragma unroll
    for (int r = 0; r < Config::kRows; ++r) {
      const int row = threadIdx.x % 32 + 32 * r, owner = row / layout.share;
      const int at = part * layout.outputs * layout.Pitch() + row % layout.share;
      to_[r] = Remote(sums + at, owner);
    }
  }

  // `output`: floats from the first of the first round's outputs.
  __device__ __forceinline__ void Put(uint32_t output, float (&sums)[Config::kRows]) const {
#pragma unroll
    for (int r = 0; r < Config::kRows; ++r) {
      to_[r][output] = sums[r];
      sums[r] = 0.0f;
    }
  }

 private:
  // The same place of another block of the cluster.
  static __device__ __forceinline__ float* Remote(float* address, [[maybe_unused]] uint32_t rank) {
#if __CUDA_ARCH__ >= 900
    uint64_t remote;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(remote) : "l"(address), "r"(rank));
    return reinterpret_cast<float*>(remote);
#else
    return address;
#endif
  }

  float* to_[Config::kRows];
};

// A round of a warp's outputs.
template <class Config>
__device__ __forceinline__ void MultiplyRound(QuadStream& stream, int quads, uint32_t rows,
                                              const SumsOut<Config>& out, uint32_t round_floats,
                                              uint32_t mask, uint32_t pitch) {
  float sums[Config::kRows] = {};
  while (quads > 0) {
    const int ready = stream.Ready(quads);
    Quad next = stream.Peek(0);
#pragma unroll 2
    for (int i = 1; i <= ready; ++i) {
      const Quad quad = next;
      if (i < ready) next = stream.Peek(i);
      MultiplyQuad<Config>(quad, rows, sums);
      if (quad.Last()) out.Put(round_floats + (quad.Output() & mask) * pitch, sums);
    }
    stream.Pass(ready);
    quads -= ready;
  }
}

// Adds up what came of the block's rows, part by part, and stores it; a thread has one output.
template <class Config>
__device__ void StoreRound(const PrunedArgs& args, const SplitLayout& layout, const float* sums_of,
                           int part, int64_t first_row, int64_t first_output) {
  const int column = threadIdx.x & (layout.outputs - 1), shift = __ffs(layout.outputs) - 1;
  const int stride = layout.outputs * layout.Pitch(), step = kSplitThreads >> shift;
  const int begin = part * layout.share;
  const int64_t rows =
      min(int64_t{min(layout.share, Config::kTile - begin)}, args.m - first_row - begin);
  const int64_t output = first_output + column;
  if (output >= args.n) return;
  const float bias = args.bias ? __ldg(args.bias + output) : 0.0f;
  const float* from = sums_of + column * layout.Pitch() + (threadIdx.x >> shift);
  float* to = static_cast<float*>(args.out) +
              (first_row + begin + (threadIdx.x >> shift)) * args.n + output;
#pragma unroll 1
  for (int row = threadIdx.x >> shift; row < rows; row += step) {
    float sum = bias;
#pragma unroll 4
    for (int p = 0; p < layout.parts; ++p) sum += from[p * stride];
    *to = simt::Activate(args.activation, sum);
    to += step * args.n;
    from += step;
  }
}

}  // namespace split

// `starts`: the quad at which each warp of a group and part begins; `extra`: u16, quads of each
// warp in each round of a group and part.
template <class Config>
__global__ void __launch_bounds__(kSplitThreads, 1)
    PrunedSplit(const __grid_constant__ PrunedArgs args, const SplitLayout layout) {
  extern __shared__ float4 memory[];
  float* const panel = reinterpret_cast<float*>(memory);
  const uint32_t base = ptx::SharedAddress(memory);
  float* const sums = panel + (Config::kPanelBytes + Config::kRingBytes) / 4;
  const int part = blockIdx.x % layout.parts, unit = blockIdx.x / layout.parts;
  const int group = unit % layout.groups, warp = threadIdx.x / 32;
  const int64_t first_row = int64_t{unit / layout.groups} * Config::kTile;
  const int64_t streams = (int64_t{group} * layout.parts + part) * kSplitWarps;
  LetNextStart();
  ptx::ArriveBegun();
  WaitForPrevious();
  const uint32_t start = static_cast<uint32_t>(__ldg(args.starts + streams + warp));
  const uint16_t* counts =
      reinterpret_cast<const uint16_t*>(args.extra) + streams * layout.rounds + warp;
  int quads = __ldg(counts);
  split::PanelFill<Config> fill(args, panel, first_row, int64_t{part} * Config::kInputs);
  fill.Load(0);
  split::QuadStream stream(args, layout, base + Config::kPanelBytes, start);
#pragma unroll
  for (int turn = 0; turn < fill.kTurns; ++turn) {
    if (turn > 0) fill.Load(turn);
    fill.Store(turn);
  }
  const split::SumsOut<Config> out(layout, sums, part);
  const uint32_t rows = base + threadIdx.x % 32 * (Config::kPitch * 4);
  __syncthreads();
  ptx::WaitBegun();
  for (int round = 0; round < layout.rounds; ++round) {
    const int now = quads, buffer = round % 2 * layout.RoundFloats();
    if (round + 1 < layout.rounds) quads = __ldg(counts += kSplitWarps);
    split::MultiplyRound<Config>(stream, now, rows, out, buffer, layout.outputs - 1,
                                 layout.Pitch());
    fragment::MeetCluster();
    const int64_t output = (int64_t{group} * layout.rounds + round) * layout.outputs;
    split::StoreRound<Config>(args, layout, sums + buffer, part, first_row, output);
  }
}

}  // namespace jaxsparse
