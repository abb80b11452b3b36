// y = h @ w_down, where lists say which entries of h are not zero.
//
// Floor:  a listed row of w_down is read from shared memory once for every eight tokens.
// Tile:   a CTA has 512 tokens and 64 columns of the result, a warp 32 tokens in four groups, whose
//         sums stay in registers. Panels of 512 rows by 64 columns of w_down pass through shared
//         memory; every list has the rows of one panel, in blocks of 16.
// Product: the panel's columns are the rows of the tensor core's tile, the listed rows its depth,
//         and eight tokens its columns. A lane reads eight columns of four rows. Neighbouring rows
//         of the depth are joined to pairs in registers.
// Pipeline: CTAs are persistent over tiles; panels are copied one or two ahead, also across tiles,
//         and a block's ids and values are read two blocks ahead, also across panels.
#pragma once

#include "cuda/core/async_copy.cuh"
#include "cuda/core/matrix_copy.cuh"
#include "cuda/core/mma_sync.cuh"
#include "cuda/kernels/sparse_ffn/many/params.cuh"

namespace jaxsparse {

constexpr int kRowWarps = 16, kRowThreads = kRowWarps * 32;
constexpr int kRowGroups = 4;                     // of a warp
constexpr int kRowTile = kRowWarps * kRowGroups;  // groups of a CTA
constexpr int kRowColumns = 64;                   // of a CTA
constexpr int kPanelRow = kRowColumns * 2;        // bytes
static_assert(kStageBytes == kListChunk * kPanelRow, "a stage has a panel");
static_assert(kPanelRow == 1 << kIdShift, "ids are distances in a panel");

struct RowPlan {
  int groups, chunks, panels, tiles;  // panels of columns; tiles * chunks is an int
};

// Copies a panel: eight threads a row.
template <class T>
__device__ __forceinline__ void CopyPanel(const ListedArgs& a, uint32_t to, int chunk, int panel) {
  constexpr int kRows = kRowThreads / 8;  // at once
  const int row = threadIdx.x / 8, vector = threadIdx.x % 8;
  const int first = chunk * kListChunk + row, column = panel * kRowColumns + vector * 8;
  const T* const w = static_cast<const T*>(a.w_down);
  const T* from = w + int64_t{first} * a.outputs + column;
  to += row * kPanelRow + (vector ^ row % 4 * 2) * 16;
#pragma unroll
  for (int i = 0; i < kListChunk; i += kRows) {
    const bool there = first + i < a.hidden && column < a.outputs;
    ptx::CopyOrZero16(to + i * kPanelRow, there ? from : w, there ? 16 : 0);
    from += int64_t{kRows} * a.outputs;
  }
}

// What a lane has of a block.
struct ListBlock {
  uint2 values, ids;
};

// The blocks of a warp's four lists of a chunk, one list after the other.
class ListWalk {
 public:
  // `halves` is, in lane j < 4, the number of half blocks in list j; `first` is list 0.
  __device__ __forceinline__ void Start(int halves, int first) {
    first_ = first;
    shorts_ = __ballot_sync(kWholeWarp, halves % 2 != 0);
    int end = 0;
#pragma unroll
    for (int j = 0; j < kRowGroups; ++j) {
      end += (__shfl_sync(kWholeWarp, halves, j) + 1) / 2;
      ends_[j] = end;
    }
  }
  __device__ __forceinline__ int count() const { return ends_[kRowGroups - 1]; }
  __device__ __forceinline__ int List(int i) const {
    return (i >= ends_[0]) + (i >= ends_[1]) + (i >= ends_[2]);
  }
  // Whether the second half of block i is empty.
  __device__ __forceinline__ bool Short(int i, int list) const {
    const bool last =
        i + 1 == ends_[0] || i + 1 == ends_[1] || i + 1 == ends_[2] || i + 1 == count();
    return last && (shorts_ >> list & 1) != 0;
  }
  // Zeros past the last one.
  __device__ __forceinline__ ListBlock Read(const uint2* ids, const uint2* values, int chunks,
                                            int i, int lane) const {
    ListBlock block = {make_uint2(0, 0), make_uint2(0, 0)};
    if (i < count()) {
      const int list = List(i);
      const int start = list == 0 ? 0 : list == 1 ? ends_[0] : list == 2 ? ends_[1] : ends_[2];
      const int64_t at = int64_t{first_ + list * chunks} * kListBlocks + (i - start);
      block.values = __ldg(values + at * 32 + lane);
      block.ids = __ldg(ids + at * (kListBlock / kLaneIds) + lane % 4);
    }
    return block;
  }

 private:
  int first_ = 0, ends_[kRowGroups] = {};
  uint32_t shorts_ = 0;
};

// Eight columns of four rows of a block.
struct RowVectors {
  uint32_t words[kLaneIds][4];

  // `panel` is in shared memory; `vector` is 16 times the lane's vector of columns.
  __device__ __forceinline__ void Load(uint32_t panel, uint2 ids, uint32_t vector, bool is_short) {
    ptx::LoadShared16(panel + ((ids.x & kIdBits) ^ vector), words[0]);
    ptx::LoadShared16(panel + ((ids.x >> 16 & kIdBits) ^ vector), words[1]);
    if (is_short) {
#pragma unroll
      for (int i = 0; i < 4; ++i) words[2][i] = words[3][i] = 0;
    } else {
      ptx::LoadShared16(panel + ((ids.y & kIdBits) ^ vector), words[2]);
      ptx::LoadShared16(panel + ((ids.y >> 16 & kIdBits) ^ vector), words[3]);
    }
  }
  // Tile i of the sums has columns 2 * i and 2 * i + 1 of every lane's eight, in its two halves.
  template <class T>
  __device__ __forceinline__ void MultiplyAdd(uint2 values, float (&sums)[4][4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t a[4] = {__byte_perm(words[0][i], words[1][i], 0x5410),
                             __byte_perm(words[0][i], words[1][i], 0x7632),
                             __byte_perm(words[2][i], words[3][i], 0x5410),
                             __byte_perm(words[2][i], words[3][i], 0x7632)};
      ptx::MmaSync<T>(sums[i], a, values.x, values.y);
    }
  }
};

// Of one group: a lane has eight columns of two tokens.
template <class T>
__device__ __forceinline__ void StoreSums(const ListedArgs& a, int group, int column,
                                          const float (&sums)[4][4]) {
  using Traits = DTypeTraits<T>;
  const int token = group * kListTokens + threadIdx.x % 4 * 2;
  T* const y = static_cast<T*>(a.y) + int64_t{token} * a.outputs + column;
  if (column >= a.outputs) return;
  const auto packed = [&](int i) {
    return make_uint4(
        Traits::Pack(sums[0][i], sums[0][i + 2]), Traits::Pack(sums[1][i], sums[1][i + 2]),
        Traits::Pack(sums[2][i], sums[2][i + 2]), Traits::Pack(sums[3][i], sums[3][i + 2]));
  };
  if (token < a.tokens) *reinterpret_cast<uint4*>(y) = packed(0);
  if (token + 1 < a.tokens) *reinterpret_cast<uint4*>(y + a.outputs) = packed(1);
}

template <class T, int kStages>
__global__ void __launch_bounds__(kRowThreads, 1)
    RowKernel(const ListedArgs a, const uint2* values, const RowPlan plan) {
  extern __shared__ __align__(128) uint8_t panels[];
  const uint32_t shared = static_cast<uint32_t>(__cvta_generic_to_shared(panels));
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint2* const ids = reinterpret_cast<const uint2*>(a.ids);
  const int grid = static_cast<int>(gridDim.x), first = static_cast<int>(blockIdx.x);
  const int steps = (plan.tiles - first + grid - 1) / grid * plan.chunks;
  const auto tile = [&](int step) { return first + step / plan.chunks * grid; };
  const auto chunk = [&](int step) { return step % plan.chunks; };
  const auto group = [&](int step) {
    return tile(step) / plan.panels * kRowTile + warp * kRowGroups;
  };
  const auto copy = [&](int step) {
    if (step < steps) {
      CopyPanel<T>(a, shared + step % kStages * kStageBytes, chunk(step), tile(step) % plan.panels);
    }
    ptx::CloseGroup();
  };
  const auto halves = [&](int step) {  // in lane j, of list j
    if (step >= steps || lane >= kRowGroups || group(step) + lane >= plan.groups) return 0;
    return HalfBlocks(
        __ldg(a.counts + 2 * int64_t{(group(step) + lane) * plan.chunks + chunk(step)}));
  };
  for (int i = 0; i + 1 < kStages; ++i) copy(i);
  ListWalk walk;
  walk.Start(halves(0), group(0) * plan.chunks + chunk(0));
  ListBlock now = walk.Read(ids, values, plan.chunks, 0, lane);
  ListBlock next = walk.Read(ids, values, plan.chunks, 1, lane);
  float sums[kRowGroups][4][4] = {};
  for (int step = 0; step < steps; ++step) {
    ptx::WaitForGroups<kStages - 2>();
    __syncthreads();  // this step's panel is there, and the one before is not needed any more
    copy(step + kStages - 1);
    const int coming = halves(step + 1);
    const uint32_t panel = shared + step % kStages * kStageBytes;
    for (int i = 0; i < walk.count(); ++i) {
      const ListBlock later = walk.Read(ids, values, plan.chunks, i + 2, lane);
      const int list = walk.List(i);
      RowVectors rows;
      rows.Load(panel, now.ids, lane / 4 * 16, walk.Short(i, list));
#pragma unroll
      for (int j = 0; j < kRowGroups; ++j) {
        if (j == list) rows.MultiplyAdd<T>(now.values, sums[j]);
      }
      now = next;
      next = later;
    }
    if (chunk(step) == plan.chunks - 1) {
      const int column = tile(step) % plan.panels * kRowColumns + lane / 4 * 8;
#pragma unroll
      for (int j = 0; j < kRowGroups; ++j) {
        StoreSums<T>(a, group(step) + j, column, sums[j]);
#pragma unroll
        for (int i = 0; i < 16; ++i) sums[j][i / 4][i % 4] = 0.0f;
      }
    }
    walk.Start(coming, group(step + 1) * plan.chunks + chunk(step + 1));
    now = walk.Read(ids, values, plan.chunks, 0, lane);
    next = walk.Read(ids, values, plan.chunks, 1, lane);
  }
}

}  // namespace jaxsparse
