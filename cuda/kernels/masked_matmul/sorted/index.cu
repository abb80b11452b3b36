// Index of tiles of sorted columns: for every 128 rows the columns of `a` that some of their four
// pieces keep, those of the same pieces side by side. One block of threads a tile; the order is a
// counting sort by 15 kinds, from popcounts and prefixes, with no synchronisation across blocks.
//
// Kinds go in the order of a Gray code: neighbours differ in one piece, so a step that holds
// columns of two kinds multiplies no more pieces than the larger of them has.
//
// Floor: the mask's bits once, 512 KB of bools for 4096 x 4096 at 32x1; latency is what it costs.
// Measured (H200): 4.5 us at 90 %, 5.2 at 50 %.
#include "cuda/bits/pack_bytes.cuh"
#include "cuda/core/launch.h"
#include "cuda/core/overlap.cuh"
#include "cuda/kernels/masked_matmul/bits.cuh"
#include "cuda/kernels/masked_matmul/strips.h"

namespace jaxsparse {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32, kKinds = 16;
constexpr int kWindowWords = kSortWindow / 32, kWarpWords = kWindowWords / kWarps;
constexpr int kWindowSlabs = kSortWindow / 32;  // at most: of 32 columns in float32
static_assert(kWindowWords * kPanelPieces == kThreads, "a thread reads a word of a piece");

struct SortShared {
  uint4 kept[kWindowWords];  // what the four pieces keep, a word of columns each
  int counts[kWarps][kKinds];
  int32_t columns[kSortWindow];
  int32_t live[kWindowSlabs];
};

// Which of the columns k to k + 31 the piece at `row` keeps.
__device__ __forceinline__ uint32_t KeptWord(const StripParams& p, int64_t list, int row, int k) {
  const BlockBits& bits = p.a_bits;
  if (row >= p.rows || k >= p.depth) return 0;
  const int64_t line = (bits.lists == 1 ? 0 : list) * bits.rows + row / bits.row_size;
  const auto* bools = reinterpret_cast<const uint8_t*>(bits.words);
  const uint32_t* words = bits.words + line * bits.row_words;
  if (bits.col_size == 1) {
    if (!bits.is_bools) return __ldg(words + k / 32);
    return MaskBytes(bools, bits.lists * bits.rows * bits.columns, bits.columns).Load(line, k / 32);
  }
  const auto size = static_cast<uint32_t>(bits.col_size);
  uint32_t kept = 0;
  for (int i = 0; i < 32 && k + i < p.depth; ++i) {
    const uint32_t block = static_cast<uint32_t>(k + i) / size;
    const bool keeps =
        bits.is_bools ? __ldg(bools + line * bits.columns + block) != 0 : HasBlock(words, block);
    kept |= static_cast<uint32_t>(keeps) << i;
  }
  return kept;
}

// Columns of one word that exactly the pieces in `kind` keep.
__device__ __forceinline__ uint32_t OfKind(const uint4& kept, int kind) {
  const auto either = [&](uint32_t word, int piece) { return (kind >> piece) & 1 ? word : ~word; };
  return either(kept.x, 0) & either(kept.y, 1) & either(kept.z, 2) & either(kept.w, 3);
}

// The pieces that keep the lane's column of a word.
__device__ __forceinline__ int KindOf(const uint4& kept) {
  const int lane = threadIdx.x % 32;
  return ((kept.x >> lane) & 1) | ((kept.y >> lane) & 1) << 1 | ((kept.z >> lane) & 1) << 2 |
         ((kept.w >> lane) & 1) << 3;
}

// Sorts a window's columns; returns how many there are. A lane counts the columns of one kind, the
// `rank`-th, in every other word of its warp's.
__device__ __forceinline__ int SortWindow(int first_column, SortShared& s) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rank = lane % kKinds;
  const int kind = rank ^ rank >> 1;
  uint32_t mine[kWarpWords / 2];
  int before[kWarpWords / 2], count = 0;  // of the kind, in the warp's words
#pragma unroll
  for (int i = 0; i < kWarpWords / 2; ++i) {
    mine[i] = kind == 0 ? 0 : OfKind(s.kept[warp * kWarpWords + 2 * i + lane / kKinds], kind);
    const int here = __popc(mine[i]), other = __shfl_xor_sync(~0u, here, kKinds);
    before[i] = count + (lane < kKinds ? 0 : other);
    count += here + other;
  }
  if (lane < kKinds) s.counts[warp][rank] = count;
  __syncthreads();
  int earlier = 0, all = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    earlier += w < warp ? s.counts[w][rank] : 0;
    all += s.counts[w][rank];
  }
  int end = all;
#pragma unroll
  for (int step = 1; step < kKinds; step *= 2) {
    const int lower = __shfl_up_sync(~0u, end, step, kKinds);
    end += rank >= step ? lower : 0;
  }
  const int begin = end - all + earlier;
#pragma unroll
  for (int i = 0; i < kWarpWords; ++i) {
    const int word = warp * kWarpWords + i, keeps = KindOf(s.kept[word]);
    const int place = keeps ^ keeps >> 1 ^ keeps >> 2 ^ keeps >> 3;  // the rank of a kind
    const int source = i % 2 * kKinds + place;
    const uint32_t same = __shfl_sync(~0u, mine[i / 2], source);
    const int at = __shfl_sync(~0u, begin + before[i / 2], source);
    if (keeps != 0) {
      s.columns[at + __popc(same & ((1u << lane) - 1))] =
          keeps << kPiecesShift | (first_column + 32 * word + lane);
    }
  }
  return __shfl_sync(~0u, end, kKinds - 1);
}

// Writes a window's slabs: its columns, and which pieces live in each of their steps.
__device__ __forceinline__ void ListSlabs(const StripParams& p, int slabs, int32_t* columns,
                                          SortShared& s) {
  const int lane = threadIdx.x % 32, step = p.slab / kSlabSteps;
  for (int i = threadIdx.x / 32; i < slabs; i += kWarps) {
    uint32_t live = 0;
    for (int at = lane; at < p.slab; at += 32) {
      const int entry = s.columns[i * p.slab + at];
      columns[i * p.slab + at] = entry;
      live |= static_cast<uint32_t>(entry >> kPiecesShift) << (at / step * kPanelPieces);
    }
    live = __reduce_or_sync(~0u, live);
    if (lane == 0) s.live[i] = static_cast<int32_t>(live);
  }
}

__global__ void __launch_bounds__(kThreads)
    SortedIndexKernel(const __grid_constant__ StripParams p) {
  __shared__ SortShared s;
  LetNextStart();
  const int lane = threadIdx.x % 32, piece = threadIdx.x / kWindowWords;
  const int word = threadIdx.x % kWindowWords;
  const int64_t tile = blockIdx.x, list = tile / p.index.piece_tiles;
  const int row = static_cast<int>(tile % p.index.piece_tiles) * kPanelPieces * kPieceRows;
  int slabs = 0, blocks = 0;
  for (int window = 0; window < p.index.sorted.windows; ++window) {
    const int first = window * kSortWindow;
    reinterpret_cast<uint32_t*>(s.kept)[word * kPanelPieces + piece] =
        KeptWord(p, list, row + piece * kPieceRows, first + 32 * word);
    __syncthreads();
    const int count = SortWindow(first, s), more = (count + p.slab - 1) / p.slab;
    __syncthreads();
    // What fills up the last slab is a column that is read anyhow, and no piece's.
    for (int i = count + threadIdx.x; i < more * p.slab; i += kThreads) {
      s.columns[i] = s.columns[count - 1] & kColumnMask;
    }
    __syncthreads();
    ListSlabs(p, more, p.index.sorted.columns + (tile * p.slabs + slabs) * p.slab, s);
    __syncthreads();
    for (int i = 0; threadIdx.x < 32 && i < more; i += 32) {
      const int live = i + lane < more ? s.live[i + lane] : 0;
      int end = __popc(live);
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int lower = __shfl_up_sync(~0u, end, step);
        end += lane >= step ? lower : 0;
      }
      if (i + lane < more) {
        p.index.piece_entries[tile * p.slabs + slabs + i + lane] = live;
        p.index.sorted.blocks[tile * p.slabs + slabs + i + lane] = blocks + end - __popc(live);
      }
      blocks += __shfl_sync(~0u, end, 31);
    }
    slabs += more;
    if (threadIdx.x == 0) p.index.sorted.ends[tile * p.index.sorted.windows + window] = slabs;
  }
  if (threadIdx.x == 0) p.index.piece_slabs[tile] = slabs;
}

}  // namespace

cudaError_t LaunchSortedIndex(const StripParams& p, cudaStream_t stream) {
  SortedIndexKernel<<<p.index.lists * p.index.piece_tiles, kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

cudaError_t PrepareSortedIndex() { return PrepareKernel(&SortedIndexKernel, 0); }

}  // namespace jaxsparse
