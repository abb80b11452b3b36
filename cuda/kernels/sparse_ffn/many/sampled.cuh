// values *= x @ w_up where a list has an entry: a sampled product.
//
// Floor:  a listed row of w_up^T is read from shared memory once for every eight tokens.
// Tile:   a CTA has up to 512 tokens, and the lists of one chunk: 512 rows of w_up^T. A warp has
//         four groups of tokens, and four blocks of each list at a time: a second pass takes the
//         others, where there are any.
// Product: 16 listed rows are the rows of the tensor core's tile, eight tokens its columns. Slabs
// of
//         32 of the depth pass through shared memory, 64 bytes a row. A lane reads 16 bytes of a
//         row: which eight of the depth are multiplied together is the same for both operands.
// Banks:  two rows are read in one access: conflict-free where one is even and the other odd, which
//         the order of a list provides for most of them.
#pragma once

#include "cuda/core/async_copy.cuh"
#include "cuda/core/matrix_copy.cuh"
#include "cuda/core/mma_sync.cuh"
#include "cuda/kernels/sparse_ffn/many/params.cuh"

namespace jaxsparse {

constexpr int kSampleWarps = 16, kSampleThreads = kSampleWarps * 32;
constexpr int kSampleGroups = 4;                           // of a warp
constexpr int kSampleTile = kSampleWarps * kSampleGroups;  // groups of a CTA at most
constexpr int kSampleBlocks = 4;                           // of a list, in a pass
constexpr int kSlab = 32, kSlabRow = kSlab * 2;            // elements, bytes
constexpr int kSlabBytes = kListChunk * kSlabRow;          // of one operand
static_assert(kStageBytes == 2 * kSlabBytes, "a stage has a slab of both");
static_assert(kSampleTile * kListTokens == kListChunk, "both operands have as many rows");

struct SamplePlan {
  int groups, chunks, tile;  // `tile`: groups of a CTA
};

// Copies slabs of both operands, one after the other: four threads a row. Rows that are not there
// are left out: nothing that is stored depends on them. The depth ends with zeros.
class SlabCopy {
 public:
  __device__ __forceinline__ SlabCopy(const ListedArgs& a, int first_token, int tokens, int chunk)
      : a_(a) {
    const int row = threadIdx.x / 4, vector = threadIdx.x % 4;
    const int token = first_token + row, column = chunk * kListChunk + row;
    left_ = a.depth / kVector - vector;
    x_ = static_cast<uint32_t>(int64_t{token} * (a.depth / kVector) + vector);
    w_ = static_cast<uint32_t>(int64_t{column} * (a.depth / kVector) + vector);
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      if (column + i * kRows < a.hidden) there_ |= 1u << i;
      if (row + i * kRows < tokens && token + i * kRows < a.tokens) there_ |= 1u << (kTurns + i);
    }
  }
  // The next slab, to `stage`: the rows of w_up^T, then those of x.
  __device__ __forceinline__ void Next(uint32_t stage) {
    stage += threadIdx.x * 16;
#pragma unroll 1  // few registers are free
    for (int i = 0; i < kTurns; ++i) {
      Copy(stage + i * kRows * kSlabRow, a_.w_up, w_, i, i);
      Copy(stage + kSlabBytes + i * kRows * kSlabRow, a_.x, x_, i, kTurns + i);
    }
    w_ += kSlab / kVector;
    x_ += kSlab / kVector;
    left_ -= kSlab / kVector;
  }

 private:
  static constexpr int kRows = kSampleThreads / 4, kTurns = kListChunk / kRows, kVector = 8;

  __device__ __forceinline__ void Copy(uint32_t to, const void* from, uint32_t at, int turn,
                                       int bit) const {
    if ((there_ >> bit & 1) == 0) return;
    const uint32_t vector = at + static_cast<uint32_t>(turn) * (kRows / kVector * a_.depth);
    ptx::CopyOrZero16(to, static_cast<const uint4*>(from) + (left_ > 0 ? vector : 0),
                      left_ > 0 ? 16 : 0);
  }

  const ListedArgs& a_;
  uint32_t w_, x_, there_ = 0;  // vectors of 16 bytes
  int left_;
};

// A lane's rows of a block: g and g + 8 of the tensor core's tile, as distances in a slab.
__device__ __forceinline__ uint32_t SlabRows(const uint16_t* ids, int lane) {
  const int g = lane / 4;
  const uint16_t* const own = ids + g / 2 * kLaneIds + g % 2;
  const auto distance = [&](uint32_t id) { return (id >> kIdShift) * kSlabRow + lane % 4 * 16; };
  return distance(own[0]) | distance(own[2]) << 16;
}

// Two values times what they are multiplied by; a zero stays, whatever that is.
template <class T>
__device__ __forceinline__ uint32_t Gated(uint32_t values, uint32_t by) {
  using Traits = DTypeTraits<T>;
  const float2 v = Traits::Unpack(values), w = Traits::Unpack(by);
  return Traits::Pack(v.x == 0.0f ? 0.0f : v.x * w.x, v.y == 0.0f ? 0.0f : v.y * w.y);
}

// Which blocks of a pass there are, a bit for each of a warp's sixteen; those whose second half is
// not empty are in the upper half word.
struct SampleBlocks {
  uint32_t bits = 0;

  __device__ __forceinline__ void Put(int j, int halves) {
    halves = min(max(halves, 0), 2 * kSampleBlocks);
    bits |= ((1u << (halves + 1) / 2) - 1) << j * kSampleBlocks;
    bits |= ((1u << halves / 2) - 1) << (16 + j * kSampleBlocks);
  }
  __device__ __forceinline__ bool Any(int j) const { return (bits >> j * kSampleBlocks & 1) != 0; }
  __device__ __forceinline__ bool There(int j, int b) const {
    return (bits >> (j * kSampleBlocks + b) & 1) != 0;
  }
  __device__ __forceinline__ bool Whole(int j, int b) const {
    return (bits >> (16 + j * kSampleBlocks + b) & 1) != 0;
  }
};
static_assert(kSampleGroups * kSampleBlocks == 16, "a bit of a half word each");

// Four blocks of each of a warp's lists.
template <class T>
struct SampleSums {
  float sums[kSampleGroups][kSampleBlocks][4];
  uint32_t rows[kSampleGroups][kSampleBlocks];

  // Block b of list j is number first + j * stride + b of all.
  __device__ __forceinline__ void Start(const ListedArgs& a, SampleBlocks blocks, int first,
                                        int stride, int lane) {
#pragma unroll
    for (int j = 0; j < kSampleGroups; ++j) {
#pragma unroll
      for (int b = 0; b < kSampleBlocks; ++b) {
        rows[j][b] = 0;
        if (blocks.There(j, b)) {
          rows[j][b] = SlabRows(a.ids + int64_t{first + j * stride + b} * kListBlock, lane);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[j][b][i] = 0.0f;
      }
    }
  }
  // `slab` is in shared memory; `own` is the lane's part of its token of group 0.
  __device__ __forceinline__ void Add(uint32_t slab, uint32_t own, SampleBlocks blocks) {
#pragma unroll
    for (int j = 0; j < kSampleGroups; ++j) {
      if (!blocks.Any(j)) continue;
      uint32_t x[4];
      ptx::LoadShared16(slab + own + j * (kSampleWarps * kListTokens * kSlabRow), x);
#pragma unroll
      for (int b = 0; b < kSampleBlocks; ++b) {
        if (!blocks.There(j, b)) break;
        uint32_t low[4], high[4] = {0, 0, 0, 0};
        ptx::LoadShared16(slab + (rows[j][b] & 0xFFFFu), low);
        if (blocks.Whole(j, b)) ptx::LoadShared16(slab + (rows[j][b] >> 16), high);
        ptx::MmaSync<T>(sums[j][b], {low[0], high[0], low[1], high[1]}, x[0], x[1]);
        ptx::MmaSync<T>(sums[j][b], {low[2], high[2], low[3], high[3]}, x[2], x[3]);
      }
    }
  }
  __device__ __forceinline__ void Store(const ListedArgs& a, SampleBlocks blocks, int first,
                                        int stride, int lane) const {
    using Traits = DTypeTraits<T>;
#pragma unroll
    for (int j = 0; j < kSampleGroups; ++j) {
#pragma unroll
      for (int b = 0; b < kSampleBlocks; ++b) {
        if (!blocks.There(j, b)) break;
        const float (&s)[4] = sums[j][b];
        const uint32_t low = ptx::TransposedMatrix(Traits::Pack(s[0], s[1]));
        const uint32_t high = ptx::TransposedMatrix(Traits::Pack(s[2], s[3]));
        const int64_t place = int64_t{first + j * stride + b} * 32 + lane;
        const uint2 v = __ldg(static_cast<const uint2*>(a.values) + place);
        static_cast<uint2*>(a.products)[place] =
            make_uint2(Gated<T>(v.x, low), Gated<T>(v.y, high));
      }
    }
  }
};

template <class T, int kStages>
__global__ void __launch_bounds__(kSampleThreads, 1)
    SampledKernel(const ListedArgs a, const SamplePlan plan) {
  extern __shared__ __align__(128) uint8_t slabs[];
  const uint32_t shared = static_cast<uint32_t>(__cvta_generic_to_shared(slabs));
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int chunk = blockIdx.x % plan.chunks;
  const int tile = static_cast<int>(blockIdx.x / plan.chunks) * plan.tile;
  const int groups = min(plan.tile, plan.groups - tile);
  const int slabs_in_all = (a.depth + kSlab - 1) / kSlab;
  // Group j of a warp is number 16 * j + warp of the CTA.
  const int list = (tile + warp) * plan.chunks + chunk, stride = kSampleWarps * plan.chunks;
  const auto halves = [&](int j) {
    if (j * kSampleWarps + warp >= groups) return 0;
    return HalfBlocks(__ldg(a.counts + 2 * int64_t{list + j * stride}));
  };
  // The lane's part of its token's row, behind those of w_up^T.
  const uint32_t own = kSlabBytes + (warp * kListTokens + lane / 4) * kSlabRow + lane % 4 * 16;
  SampleSums<T> sums;
  for (int pass = 0; pass < kListBlocks / kSampleBlocks; ++pass) {
    SampleBlocks blocks;
#pragma unroll
    for (int j = 0; j < kSampleGroups; ++j) blocks.Put(j, halves(j) - pass * 2 * kSampleBlocks);
    if (!__syncthreads_or(blocks.bits != 0)) return;  // the stages are free now
    const int first = list * kListBlocks + pass * kSampleBlocks;
    sums.Start(a, blocks, first, stride * kListBlocks, lane);
    SlabCopy copy(a, tile * kListTokens, groups * kListTokens, chunk);
    for (int i = 0; i + 1 < kStages; ++i) {
      if (i < slabs_in_all) copy.Next(shared + i * kStageBytes);
      ptx::CloseGroup();
    }
    for (int i = 0; i < slabs_in_all; ++i) {
      ptx::WaitForGroups<kStages - 2>();
      __syncthreads();  // this slab is there, and the one before is not needed any more
      const int ahead = i + kStages - 1;
      if (ahead < slabs_in_all) copy.Next(shared + ahead % kStages * kStageBytes);
      ptx::CloseGroup();
      sums.Add(shared + i % kStages * kStageBytes, own, blocks);
    }
    sums.Store(a, blocks, first, stride * kListBlocks, lane);
  }
}

}  // namespace jaxsparse
