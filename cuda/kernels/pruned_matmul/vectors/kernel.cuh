// Vectors of 8 outputs that share an input, on tensor cores: y[m, n] = x[m, k] @ w[k, n].
//
// A group is 8 neighbouring outputs; its columns, the inputs that one of them keeps, are condensed:
// a step is 16 columns (8 in float32, as TF32) of any inputs, a fragment of w whose 8 B a lane come
// from memory in their own layout, through a ring of each warp. A tile of 64 rows of x passes
// through a ring of chunks in shared memory, boxes of 128 bytes a row that TMA loads a few chunks
// ahead; a step reads columns of the last chunks, and its lanes their elements one by one: 8 rows
// of 4 columns have no bank conflict when the columns differ modulo four words (the 16-byte pieces
// of a row lie exchanged by row modulo 8): the packer orders them so, where it can. A warp owns one
// to four groups and keeps their sums over all chunks; warps synchronise only at the ring's
// barriers, a chunk apart at most. Blocks are persistent: the next tile is under way while the
// present one is stored.
//
// Floor: 4 bytes of shared memory (2 in 16 bits, but as many loads) for the 8 products of a column
// with a row of x: 128 bytes a cycle and SM are 256 products, 59e12 a second on 132 SMs at 1.755
// GHz; x read and y written once at 4.0 TB/s, as a copy of as many bytes reaches.
//
// Predicted for 4096 x 4096, 4,096 rows, 90 / 95 / 98 %, on an H200: 188 / 105 / 48 us of shared
// memory (25 to 29 cycles a step, with weights, places and bank conflicts) beside 33 of
// bytes. Measured 254 / 156 / 106: cuBLAS's TF32 takes 333. At 90 % the pipe to shared memory is
// 77 % busy (an earlier build); at 98 % four fifths of the time are there without any products: x
// comes eight times, at the rate of the second-level cache.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/kernels/pruned_matmul/fragments.cuh"
#include "cuda/kernels/pruned_matmul/vectors/ring.cuh"
#include "cuda/kernels/pruned_matmul/vectors/store.cuh"

namespace jaxsparse {

// A step of a warp: the lane's weights, and where its columns lie in the ring, in elements.
struct VectorStep {
  uint2 weights;
  uint2 places;  // 16 bits each
};

// The steps of a warp in the order of their use, in a ring of its own that `cp.async` fills.
template <typename T>
class VectorStream {
 public:
  using Config = VectorConfig<T>;

  __device__ VectorStream(const PrunedArgs& args, uint32_t ring)
      : ring_(ring), last_(static_cast<int32_t>(args.entries * sizeof(T) / 256 - 1)) {
    constexpr int kPlaceBytes = 8 * Config::kQuads;
    const int lane = threadIdx.x % 32;
    const bool weights = lane < 16;
    from_ = weights ? static_cast<const uint8_t*>(args.values) + lane * 16
                    : static_cast<const uint8_t*>(args.indices) + (lane - 16) * 16;
    pitch_ = weights ? 256 : kPlaceBytes;
    loads_ = lane < 16 + kPlaceBytes / 16;
  }

  // Goes to step `first`.
  __device__ __forceinline__ void Begin(int32_t first) {
    fragment::Wait<0>();
    __syncwarp();
    left_ = last_ - max(first, 0);
    next_ = from_ + int64_t{max(first, 0)} * pitch_;
    slot_ = 0;
#pragma unroll
    for (int i = 0; i < kVectorAhead - 1; ++i) Load(i * Config::kStepBytes);
    spare_ = (kVectorAhead - 1) * Config::kStepBytes;
  }

  __device__ __forceinline__ VectorStep Next() {
    fragment::Wait<kVectorAhead - 2>();
    __syncwarp();  // the step lies there, and every lane has read the one before
    const int lane = threadIdx.x % 32;
    const uint32_t step = ring_ + slot_;
    VectorStep found;
    if constexpr (Config::kQuads == 2) {
      found.places = {fragment::Load32(step + 256 + lane % 4 * 4), 0};
    } else {
      found.places = Load64(step + 256 + lane % 4 * 8);
    }
    found.weights = Load64(step + lane * 8);
    Load(spare_);
    spare_ = slot_;
    slot_ = slot_ == (kVectorAhead - 1) * Config::kStepBytes ? 0 : slot_ + Config::kStepBytes;
    return found;
  }

 private:
  static __device__ __forceinline__ uint2 Load64(uint32_t address) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address));
    return v;
  }

  // Past the last step there is nothing to load, and what lies there is never used by right arrays.
  __device__ __forceinline__ void Load(uint32_t slot) {
    if (loads_ && left_ >= 0) {
      fragment::Copy16(ring_ + slot + threadIdx.x % 32 * 16, next_, true);
    }
    fragment::Commit();
    next_ += pitch_;
    --left_;
  }

  const uint8_t *from_, *next_;
  uint32_t ring_, slot_ = 0, spare_ = 0;
  int32_t last_, left_ = 0;
  int pitch_;
  bool loads_;
};

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

// The tile of x in the ring: rows of 128 bytes, whose 16-byte pieces TMA exchanges by row modulo 8.
template <typename T>
class VectorTile {
 public:
  using Config = VectorConfig<T>;

  __device__ explicit VectorTile(uint32_t ring)
      : row_(ring + threadIdx.x % 32 / 4 * 128), swizzle_(threadIdx.x % 32 / 4 * 16) {}

  // The tile begins at `slot` of the ring.
  __device__ __forceinline__ void Begin(int slot) { base_ = slot * kVectorSlotBytes; }

  // A step's products with all rows.
  __device__ __forceinline__ void Multiply(const VectorStep& step,
                                           float (&sums)[kVectorRows / 16][4]) const {
    uint32_t at[Config::kQuads];
#pragma unroll
    for (int q = 0; q < Config::kQuads; ++q) {
      // No place leaves the ring.
      constexpr uint32_t kLast = (Config::kRingBytes / Config::kBytes - 1) * 0x10001u;
      const uint32_t pair = __vminu2(q < 2 ? step.places.x : step.places.y, kLast);
      at[q] = Address(q % 2 == 0 ? pair & 0xffff : pair >> 16);
    }
    uint32_t a[kVectorRows / 16][4];
#pragma unroll
    for (int r = 0; r < kVectorRows / 16; ++r) Load(at, r * 16 * 128, a[r]);
#pragma unroll
    for (int r = 0; r < kVectorRows / 16; ++r) {
      if constexpr (sizeof(T) == 4) {
        MmaTf32(sums[r], a[r], step.weights);
      } else {
        fragment::Mma<T>(sums[r], a[r], step.weights.x, step.weights.y);
      }
    }
  }

 private:
  // Where the lane's first row holds the column.
  __device__ __forceinline__ uint32_t Address(uint32_t place) const {
    constexpr uint32_t kRing = Config::kRingBytes;
    const uint32_t at = place * Config::kBytes + base_;
    return (min(at, at - kRing) ^ swizzle_) + row_;
  }

  static __device__ __forceinline__ void Load(const uint32_t (&at)[Config::kQuads], uint32_t row,
                                              uint32_t (&a)[4]) {
    const uint32_t below = row + 8 * 128;
    if constexpr (sizeof(T) == 4) {
      a[0] = fragment::Load32(at[0] + row);
      a[1] = fragment::Load32(at[0] + below);
      a[2] = fragment::Load32(at[1] + row);
      a[3] = fragment::Load32(at[1] + below);
    } else {
      a[0] = LoadPairOf(at[0] + row, at[1] + row);
      a[1] = LoadPairOf(at[0] + below, at[1] + below);
      a[2] = LoadPairOf(at[2] + row, at[3] + row);
      a[3] = LoadPairOf(at[2] + below, at[3] + below);
    }
  }

  uint32_t row_, swizzle_, base_ = 0;
};

template <typename T, int kGroups>
__device__ __forceinline__ void MultiplyVectorTiles(const PrunedArgs& args, const CUtensorMap& map,
                                                    const VectorLayout& layout, uint32_t ring,
                                                    const VectorBarriers<T>& barriers) {
  using Config = VectorConfig<T>;
  const int warp = threadIdx.x / 32, step = gridDim.x;
  if (threadIdx.x == 0) {
    for (int i = 0; i < layout.ahead; ++i) LoadVectorChunk<T>(map, layout, ring, barriers, i);
  }
  int number = 0;  // of the chunk, of those of all tiles; warps load in turn
  VectorStream<T> stream(args, ring + Config::kRingBytes + warp * Config::kStreamBytes);
  VectorTile<T> x(ring);
  VectorTurn<Config::kSlots> turn, done;
  const auto release = [&] {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::BarrierArrive(barriers.Empty(done.slot));
    done.Next();
  };
  const auto first = [&](int tile) {
    return __ldg(args.starts + min(tile, layout.tiles - 1) % layout.slabs * kVectorWarps + warp);
  };
  stream.Begin(first(blockIdx.x));
  for (int tile = blockIdx.x; tile < layout.tiles; tile += step) {
    const int slab = tile % layout.slabs;
    const uint32_t* counts = reinterpret_cast<const uint32_t*>(args.extra) +
                             static_cast<int64_t>(slab) * layout.chunks * kVectorWarps + warp;
    const int32_t following = first(tile + step);
    uint32_t next = __ldg(counts);
    float sums[kGroups][kVectorRows / 16][4] = {};
    x.Begin(turn.slot);
    for (int chunk = 0; chunk < layout.chunks; ++chunk, turn.Next()) {
      const uint32_t steps = next;
      counts += kVectorWarps;
      if (chunk + 1 < layout.chunks) next = __ldg(counts);
      if (number % kVectorWarps * 32 == threadIdx.x) {
        LoadVectorChunk<T>(map, layout, ring, barriers, number + layout.ahead);
      }
      ++number;
      ptx::BarrierWait(barriers.Full(turn.slot), turn.parity);
#pragma unroll
      for (int j = 0; j < kGroups; ++j) {
#pragma unroll 1
        for (uint32_t i = steps >> j * 8 & 0xff; i > 0; --i) x.Multiply(stream.Next(), sums[j]);
      }
      if (chunk + 1 >= layout.window) release();
    }
    for (int i = min(layout.window - 1, layout.chunks); i > 0; --i) release();
    stream.Begin(following);
    const VectorStore<T, kGroups> store(args, args.rows + (slab * kVectorWarps + warp) * kGroups,
                                        ring + Config::kStage + warp * kVectorStageBytes);
    store.Store(static_cast<int64_t>(tile / layout.slabs) * kVectorRows, sums);
  }
  fragment::Wait<0>();
}

template <typename T, int kGroups>
__global__ void __launch_bounds__(kVectorThreads, 1)
    PrunedVectors([[maybe_unused]] const __grid_constant__ PrunedArgs args,
                  [[maybe_unused]] const __grid_constant__ CUtensorMap map,
                  [[maybe_unused]] const __grid_constant__ VectorLayout layout) {
#if __CUDA_ARCH__ >= 900
  using Config = VectorConfig<T>;
  extern __shared__ __align__(1024) uint8_t vector_memory[];
  const uint32_t ring = ptx::SharedAddress(vector_memory);
  const VectorBarriers<T> barriers{ring + Config::kBarriers};
  if (threadIdx.x == 0) {
    for (int i = 0; i < Config::kSlots; ++i) {
      ptx::BarrierInit(barriers.Full(i), 1);
      ptx::BarrierInit(barriers.Empty(i), kVectorWarps);
    }
    ptx::FenceBarrierInit();
  }
  __syncthreads();
  MultiplyVectorTiles<T, kGroups>(args, map, layout, ring, barriers);
#endif
}

}  // namespace jaxsparse
