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

// Copies the panels of a CTA's tiles one after the other: eight threads a row. Rows and columns
// that are not there are left out: nothing that is stored depends on them.
template <class T>
class PanelCopy {
 public:
  __device__ __forceinline__ PanelCopy(const ListedArgs& a, const RowPlan& plan)
      : a_(a), plan_(plan), tile_(blockIdx.x) {
    Aim();
  }
  // The next panel, to `stage`.
  __device__ __forceinline__ void Next(uint32_t stage) {
    if (tile_ >= plan_.tiles) return;
    const int row = threadIdx.x / 8, vector = threadIdx.x % 8;
    const uint32_t to = stage + row * kPanelRow + (vector ^ row % 4 * 2) * 16;
    const int rows = inside_ ? a_.hidden - chunk_ * kListChunk - row : 0;
#pragma unroll
    for (int i = 0; i < kListChunk; i += kRows) {
      if (i < rows) ptx::CopyAsync16(to + i * kPanelRow, from_);
      from_ += int64_t{kRows} * a_.outputs;
    }
    if (++chunk_ < plan_.chunks) return;
    chunk_ = 0;
    tile_ += gridDim.x;
    Aim();
  }

 private:
  static constexpr int kRows = kRowThreads / 8;  // at once

  __device__ __forceinline__ void Aim() {
    const int column = tile_ % plan_.panels * kRowColumns + threadIdx.x % 8 * 8;
    inside_ = column < a_.outputs;
    from_ = static_cast<const T*>(a_.w_down) + int64_t{threadIdx.x / 8} * a_.outputs + column;
  }

  const ListedArgs& a_;
  const RowPlan& plan_;
  int tile_, chunk_ = 0;
  bool inside_;
  const T* from_;
};

// What a lane has of a block. The number's highest bit: its second half is empty.
struct ListBlock {
  uint2 values, ids;
  uint32_t number;
  __device__ __forceinline__ bool Short() const { return number >> 31 != 0; }
};

// The blocks of a warp's four lists of a chunk, one list after the other: 32 at most. Lane i knows
// the number of block i.
class ListWalk {
 public:
  // `ids` and `values`: where a lane's parts of the first block of all are.
  __device__ __forceinline__ ListWalk(const uint2* ids, const uint2* values)
      : ids_(ids), values_(values) {}

  // `halves` is, in lane j < 4, the number of half blocks in list j, which is `first + j * stride`.
  // Where there are none, nothing may be read.
  __device__ __forceinline__ void Start(int halves, int first, int stride) {
    const int blocks = (halves + 1) / 2;
#pragma unroll
    for (int j = 0; j < kRowGroups; ++j) {
      ends_[j] = (j == 0 ? 0 : ends_[j - 1]) + __shfl_sync(kWholeWarp, blocks, j);
    }
    // Past the last block stands the last one again: it may be read, and is not used.
    const int i = min(static_cast<int>(threadIdx.x) % 32, ends_[kRowGroups - 1] - 1);
    const int list = (i >= ends_[0]) + (i >= ends_[1]) + (i >= ends_[2]);
    const int block = i - (list == 0 ? 0 : list == 1 ? ends_[0] : list == 2 ? ends_[1] : ends_[2]);
    const bool is_short = 2 * block + 1 == __shfl_sync(kWholeWarp, halves, list);
    number_ = (first + list * stride) * kListBlocks + block;
    number_ |= static_cast<uint32_t>(is_short) << 31;
  }
  __device__ __forceinline__ int End(int j) const { return ends_[j]; }
  __device__ __forceinline__ ListBlock Read(int i) const {
    ListBlock block;
    block.number = __shfl_sync(kWholeWarp, number_, i % 32);
    const int64_t at = block.number & 0x7FFFFFFFu;
    block.values = __ldg(values_ + at * 32);
    block.ids = __ldg(ids_ + at * (kListBlock / kLaneIds));
    return block;
  }

 private:
  const uint2 *ids_, *values_;
  int ends_[kRowGroups] = {};
  uint32_t number_ = 0;
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

// The step of a CTA: a tile and a chunk.
struct RowStep {
  int tile, chunk, group, list;  // `group` and `list`: the first of the warp

  __device__ __forceinline__ void Begin(const RowPlan& plan, int tile_index) {
    tile = tile_index;
    chunk = 0;
    group = tile / plan.panels * kRowTile + static_cast<int>(threadIdx.x) / 32 * kRowGroups;
    list = group * plan.chunks;
  }
  __device__ __forceinline__ void Advance(const RowPlan& plan) {
    ++chunk;
    ++list;
    if (chunk == plan.chunks) Begin(plan, tile + gridDim.x);
  }
  // In lane j, half blocks of list j.
  __device__ __forceinline__ int Halves(const ListedArgs& a, const RowPlan& plan) const {
    const int lane = threadIdx.x % 32;
    if (tile >= plan.tiles || lane >= kRowGroups || group + lane >= plan.groups) return 0;
    return HalfBlocks(__ldg(a.counts + 2 * int64_t{list + lane * plan.chunks}));
  }
};

template <class T, int kStages>
__global__ void __launch_bounds__(kRowThreads, 1)
    RowKernel(const ListedArgs a, const uint2* values, const RowPlan plan) {
  extern __shared__ __align__(128) uint8_t panels[];
  const uint32_t shared = static_cast<uint32_t>(__cvta_generic_to_shared(panels));
  const int lane = threadIdx.x % 32;
  const auto after = [&](uint32_t stage) {
    return stage == shared + (kStages - 1) * kStageBytes ? shared : stage + kStageBytes;
  };
  PanelCopy<T> copy(a, plan);
  for (int i = 0; i + 1 < kStages; ++i) {
    copy.Next(shared + i * kStageBytes);
    ptx::CloseGroup();
  }
  RowStep step, coming;
  step.Begin(plan, blockIdx.x);
  coming = step;
  ListWalk walk(reinterpret_cast<const uint2*>(a.ids) + lane % 4, values + lane);
  walk.Start(step.Halves(a, plan), step.list, plan.chunks);
  ListBlock now = {}, next = {};
  const auto begin = [&] {
    if (walk.End(kRowGroups - 1) == 0) return;
    now = walk.Read(0);
    next = walk.Read(1);
  };
  begin();
  float sums[kRowGroups][4][4] = {};
  uint32_t panel = shared, free = shared + (kStages - 1) * kStageBytes;
  for (; step.tile < plan.tiles; step = coming) {
    ptx::WaitForGroups<kStages - 2>();
    __syncthreads();  // this step's panel is there, and the one before is not needed any more
    copy.Next(free);
    ptx::CloseGroup();
    coming.Advance(plan);
    const int halves = coming.Halves(a, plan);
    int i = 0;
#pragma unroll
    for (int j = 0; j < kRowGroups; ++j) {
#pragma unroll 1
      for (; i < walk.End(j); ++i) {
        const ListBlock later = walk.Read(i + 2);
        RowVectors rows;
        rows.Load(panel, now.ids, lane / 4 * 16, now.Short());
        rows.MultiplyAdd<T>(now.values, sums[j]);
        now = next;
        next = later;
      }
    }
    if (step.chunk == plan.chunks - 1) {
      const int column = step.tile % plan.panels * kRowColumns + lane / 4 * 8;
#pragma unroll
      for (int j = 0; j < kRowGroups; ++j) {
        StoreSums<T>(a, step.group + j, column, sums[j]);
#pragma unroll
        for (int k = 0; k < 16; ++k) sums[j][k / 4][k % 4] = 0.0f;
      }
    }
    walk.Start(halves, coming.list, plan.chunks);
    begin();
    panel = after(panel);
    free = after(free);
  }
}

}  // namespace jaxsparse
