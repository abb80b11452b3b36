// Vectors of 8 outputs that share an input, on tensor cores: y[m, n] = x[m, k] @ w[k, n].
//
// A group is 8 neighbouring outputs; its columns, the inputs that one of them keeps, are condensed:
// a step is 16 columns (8 in float32, as TF32) of any inputs, a fragment of w whose 8 B a lane come
// from memory as they lie. x's fragments are gathered: a tile of 64 rows lies in shared memory as
// in memory, and a lane reads its elements of a step's columns one by one. Its rows are 16 bytes
// more than a multiple of 128 apart, so a load meets no bank twice when the four columns that the
// lanes of a row read differ modulo four words: the packer orders them so, where it can. Inputs
// arrive kChunk at a time by cp.async; the blocks of one SM fill and multiply in turns. A warp owns
// four groups and keeps their sums over all chunks.
//
// Floor: 4 bytes of shared memory (2 in 16 bits, but as many loads) for the 8 products of a column
// with a row of x: 128 bytes a cycle and SM are 256 products, 59e12 a second on 132 SMs at 1.755
// GHz. cuBLAS's TF32 is 207e12 of all products: 5.7x at 95 %; x, read once for 512 outputs, bounds
// it earlier.
//
// Measured on an H200, 4,096 rows of x or more: 1.06x to 1.5x cuBLAS's TF32 at 98 %, 0.9x to 1.2x
// at 95 %; in bfloat16 slower than cuBLAS but for one shape at 98 %. 98 % takes more than half the
// time of 90 %: the loading of x, or of the weights one step ahead, bounds it; which is not known.
#pragma once

#include <cstdint>

#include "cuda/kernels/pruned_fragments.cuh"

namespace jaxsparse {

inline constexpr int kVectorOutputs = 8;  // of a group
inline constexpr int kVectorGroups = 4;   // of a warp
inline constexpr int kVectorWarps = 16;
inline constexpr int kVectorSlab = kVectorOutputs * kVectorGroups * kVectorWarps;
inline constexpr int kVectorRows = 64;  // of x, of a tile
inline constexpr int kVectorChunkBytes = 1024;
inline constexpr int kVectorPitch = kVectorChunkBytes + 16;
inline constexpr int kVectorTileBytes = kVectorRows * kVectorPitch;
inline constexpr int kVectorSharedBytes = 2 * kVectorTileBytes;

template <typename T>
struct VectorConfig {
  static constexpr int kBytes = static_cast<int>(sizeof(T));
  static constexpr int kChunk = kVectorChunkBytes / kBytes;  // inputs
  static constexpr int kQuads = 8 / kBytes;                  // of columns, of a step
};

// What the launcher adds to the arguments.
struct VectorLayout {
  int32_t chunks;  // of inputs
  int32_t slabs;   // of outputs; a block serves one
};

// A step of a warp: the lane's weights, and where its columns lie in a row of the tile.
struct VectorStep {
  uint2 weights;
  uint2 offsets;  // bytes, 16 bits each
};

// The steps of a warp in the order of their use, loaded one ahead.
template <typename T>
class VectorStream {
 public:
  __device__ VectorStream(const PrunedArgs& args, int32_t first)
      : at_(static_cast<uint32_t>(max(first, 0))),
        last_(static_cast<uint32_t>(args.entries * sizeof(T) / 256 - 1)) {
    const int lane = threadIdx.x % 32;
    weights_ = static_cast<const uint2*>(args.values) + lane;
    offsets_ = static_cast<const uint8_t*>(args.indices) + lane % 4 * kOffsetBytes;
    next_ = Load();
  }

  __device__ __forceinline__ VectorStep Next() {
    const VectorStep step = next_;
    next_ = Load();
    return step;
  }

 private:
  static constexpr int kOffsetBytes = 2 * VectorConfig<T>::kQuads;

  __device__ __forceinline__ VectorStep Load() {
    const int64_t i = min(at_++, last_);
    VectorStep step;
    step.weights = __ldg(weights_ + i * 32);
    const uint8_t* const from = offsets_ + i * (4 * kOffsetBytes);
    if constexpr (kOffsetBytes == 4) {
      step.offsets = {__ldg(reinterpret_cast<const uint32_t*>(from)), 0};
    } else {
      step.offsets = __ldg(reinterpret_cast<const uint2*>(from));
    }
    return step;
  }

  const uint2* weights_;
  const uint8_t* offsets_;
  uint32_t at_, last_;
  VectorStep next_;
};

// Fills the tile with a chunk of 64 rows; what lies outside of x becomes zero.
template <typename T>
__device__ __forceinline__ void LoadVectorTile(const PrunedArgs& args, uint32_t tile,
                                               int64_t first_row, int chunk) {
  constexpr int kPieces = kVectorChunkBytes / 16, kEach = 16 / static_cast<int>(sizeof(T));
  const T* const x = static_cast<const T*>(args.x);
  const int piece = threadIdx.x % kPieces;
  const int64_t input = static_cast<int64_t>(chunk) * VectorConfig<T>::kChunk + piece * kEach;
#pragma unroll 4
  for (int row = threadIdx.x / kPieces; row < kVectorRows; row += kVectorWarps * 32 / kPieces) {
    const bool valid = first_row + row < args.m && input < args.k;
    fragment::Copy16(tile + row * kVectorPitch + piece * 16,
                     x + (valid ? (first_row + row) * args.k + input : 0), valid);
  }
}

// Two 16-bit elements, as one register.
__device__ __forceinline__ uint32_t LoadPairOf(uint32_t low, uint32_t high) {
  uint32_t v;
  asm volatile(
      "{ .reg .b16 lo, hi; ld.shared.b16 lo, [%1]; ld.shared.b16 hi, [%2]; mov.b32 %0, {lo, hi}; }"
      : "=r"(v)
      : "r"(low), "r"(high));
  return v;
}

__device__ __forceinline__ void MmaTf32(float (&d)[4], const uint32_t (&a)[4], uint2 b) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
}

// A step's products with all rows of the tile; `tile` is where the lane's first row lies.
template <typename T>
__device__ __forceinline__ void MultiplyStep(const VectorStep& step, uint32_t tile,
                                             float (&sums)[kVectorRows / 16][4]) {
  // No offset leaves the row.
  constexpr uint32_t kMask = kVectorChunkBytes - sizeof(T);
  const uint32_t q0 = tile + (step.offsets.x & kMask), q1 = tile + (step.offsets.x >> 16 & kMask);
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int r = 0; r < kVectorRows / 16; ++r) {
      const uint32_t at = r * 16 * kVectorPitch, below = at + 8 * kVectorPitch;
      const uint32_t a[4] = {fragment::Load32(q0 + at), fragment::Load32(q0 + below),
                             fragment::Load32(q1 + at), fragment::Load32(q1 + below)};
      MmaTf32(sums[r], a, step.weights);
    }
  } else {
    const uint32_t q2 = tile + (step.offsets.y & kMask), q3 = tile + (step.offsets.y >> 16 & kMask);
#pragma unroll
    for (int r = 0; r < kVectorRows / 16; ++r) {
      const uint32_t at = r * 16 * kVectorPitch, below = at + 8 * kVectorPitch;
      const uint32_t a[4] = {LoadPairOf(q0 + at, q1 + at), LoadPairOf(q0 + below, q1 + below),
                             LoadPairOf(q2 + at, q3 + at), LoadPairOf(q2 + below, q3 + below)};
      fragment::Mma<T>(sums[r], a, step.weights.x, step.weights.y);
    }
  }
}

// Stores a group's sums: two neighbouring outputs of each of eight rows a lane.
template <typename T>
__device__ __forceinline__ void StoreGroup(const PrunedArgs& args, int64_t first_row,
                                           int64_t output,
                                           const float (&sums)[kVectorRows / 16][4]) {
  const int lane = threadIdx.x % 32;
  output += lane % 4 * 2;
  const bool wide = args.out_type == DType::kF32, both = args.n % 2 == 0;
  float bias[2] = {};
  for (int c = 0; c < 2; ++c) {
    if (args.bias && output + c < args.n) bias[c] = __ldg(args.bias + output + c);
  }
#pragma unroll
  for (int r = 0; r < kVectorRows / 8; ++r) {
    const int64_t row = first_row + r * 8 + lane / 4, at = row * args.n + output;
    if (row >= args.m || output >= args.n) break;
    const float pair[2] = {simt::Activate(args.activation, sums[r / 2][r % 2 * 2] + bias[0]),
                           simt::Activate(args.activation, sums[r / 2][r % 2 * 2 + 1] + bias[1])};
    if (both) {
      simt::StoreResult<2, T>(args.out, wide, at, pair);
    } else {
      const float low[1] = {pair[0]}, high[1] = {pair[1]};
      simt::StoreResult<1, T>(args.out, wide, at, low);
      if (output + 1 < args.n) simt::StoreResult<1, T>(args.out, wide, at + 1, high);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kVectorWarps * 32)
    PrunedVectors(const __grid_constant__ PrunedArgs args, const VectorLayout layout) {
  extern __shared__ float4 memory[];
  const uint32_t tile = ptx::SharedAddress(memory);
  const int slab = blockIdx.x % layout.slabs, warp = threadIdx.x / 32;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x / layout.slabs) * kVectorRows;
  VectorStream<T> stream(args, __ldg(args.starts + slab * kVectorWarps + warp));
  const uint32_t* counts = reinterpret_cast<const uint32_t*>(args.extra) +
                           static_cast<int64_t>(slab) * layout.chunks * kVectorWarps + warp;
  const uint32_t mine = tile + threadIdx.x % 32 / 4 * kVectorPitch;
  float sums[kVectorGroups][kVectorRows / 16][4] = {};
  const auto load = [&](int chunk) {
    if (chunk < layout.chunks) {
      LoadVectorTile<T>(args, tile + chunk % 2 * kVectorTileBytes, first_row, chunk);
    }
    fragment::Commit();
  };
  load(0);
  for (int chunk = 0; chunk < layout.chunks; ++chunk, counts += kVectorWarps) {
    load(chunk + 1);
    const uint32_t steps = __ldg(counts);
    fragment::Wait<1>();
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kVectorGroups; ++j) {
#pragma unroll 1
      for (uint32_t i = steps >> j * 8 & 0xff; i > 0; --i) {
        MultiplyStep<T>(stream.Next(), mine + chunk % 2 * kVectorTileBytes, sums[j]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < kVectorGroups; ++j) {
    const int64_t group = (static_cast<int64_t>(slab) * kVectorWarps + warp) * kVectorGroups + j;
    StoreGroup<T>(args, first_row, group * kVectorOutputs, sums[j]);
  }
}

}  // namespace jaxsparse
