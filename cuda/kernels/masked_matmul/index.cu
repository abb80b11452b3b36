// Index of a masked product: for every tile of rows the slabs or columns of `a` that it needs, and
// the blocks of columns of the result that are wanted. One block of threads a tile; no sort and no
// synchronisation across blocks.
//
// Floor: the mask's bits once (2 MB for 4096 x 4096 single entries: under 1 us); latency is what it
// costs. Rows are united word by word in shared memory, then listed by popcount and prefix.
// Measured (H200, 4096 x 4096, 90 % unset): 3.8 us at 32x64, 6.5 at 32x32, 6.0 at 32x1, 9.3 at
// single entries (20 with a word a thread).
#include <algorithm>

#include "cuda/bits/pack_bytes.cuh"
#include "cuda/core/launch.h"
#include "cuda/core/overlap.cuh"
#include "cuda/kernels/masked_matmul/lists.cuh"
#include "cuda/kernels/masked_matmul/strips.h"

namespace jaxsparse {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;

// Writes value(i) of those i in [0, count) that have one (not -1), in order; returns how many. All
// threads of the block call this.
template <typename Value>
__device__ int Compact(int count, int32_t* out, int (&warp_counts)[kWarps], Value value) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int share = ((count + 31) / 32 + kWarps - 1) / kWarps * 32;
  const int begin = min(warp * share, count), end = min(begin + share, count);
  int mine = 0;
  for (int i = begin + lane; i - lane < end; i += 32) {
    mine += __popc(__ballot_sync(~0u, i < end && value(i) >= 0));
  }
  __syncthreads();  // the counts of the list before are read
  auto [at, total] = PartOfWarp(mine, warp_counts);
  for (int i = begin + lane; i - lane < end; i += 32) {
    const int v = i < end ? value(i) : -1;
    const unsigned live = __ballot_sync(~0u, v >= 0);
    if (v >= 0) out[at + __popc(live & ((1u << lane) - 1))] = v;
    at += __popc(live);
  }
  return total;
}

// Unites the mask rows of each of `pieces` pieces of 32 rows: united[piece * words + w].
__device__ void UnitePieces(const StripParams& p, int64_t list, int first_row, int pieces,
                            uint32_t* united) {
  const BlockBits& bits = p.a_bits;
  const int words = bits.words == nullptr ? 1 : static_cast<int>(bits.row_words);
  for (int i = threadIdx.x; i < pieces * words; i += kThreads) united[i] = 0;
  __syncthreads();
  if (bits.words == nullptr) {
    if (threadIdx.x < pieces && first_row + threadIdx.x * kPieceRows < p.rows) {
      united[threadIdx.x] = 1;
    }
  } else {  // every line that a piece touches, eight of them a thread
    constexpr int kLines = 8;
    const auto size = static_cast<uint32_t>(min(bits.row_size, int64_t{p.rows}));
    const int groups = ((kPieceRows - 1) / static_cast<int>(size) + 2 + kLines - 1) / kLines;
    const MaskBytes bools(reinterpret_cast<const uint8_t*>(bits.words),
                          bits.lists * bits.rows * bits.columns, bits.columns);
    const uint32_t* list_words = bits.words + (bits.lists == 1 ? 0 : list) * bits.rows * words;
    for (int i = threadIdx.x; i < pieces * groups * words; i += kThreads) {
      const int piece = i / (groups * words), rest = i - piece * groups * words;
      const int begin = first_row + piece * kPieceRows, end = min(begin + kPieceRows, p.rows);
      if (begin >= end) continue;
      const uint32_t line = static_cast<uint32_t>(begin) / size + rest / words * kLines;
      const uint32_t last = static_cast<uint32_t>(end - 1) / size;
      const uint32_t* word = list_words + int64_t{line} * words + rest % words;
      uint32_t any = 0;
      if (bits.is_bools) {
        for (uint32_t l = line; l < line + kLines && l <= last; ++l) {
          any |= bools.Load((bits.lists == 1 ? 0 : list) * bits.rows + l, rest % words);
        }
      } else {
#pragma unroll
        for (int l = 0; l < kLines; ++l) {
          if (line + l <= last) any |= __ldg(word + int64_t{l} * words);
        }
      }
      if (any != 0) atomicOr(&united[piece * words + rest % words], any);
    }
  }
  __syncthreads();
}

// The united pieces of one tile, asked by column of `a`.
struct UnitedPieces {
  const uint32_t* united;
  int pieces, words;
  uint32_t block_size;  // columns

  __device__ uint32_t Word(int w) const {
    uint32_t any = 0;
    for (int piece = 0; piece < pieces; ++piece) any |= united[piece * words + w];
    return any;
  }
  // Which pieces keep column k.
  __device__ unsigned Live(int k) const {
    const uint32_t block = static_cast<uint32_t>(k) / block_size;
    unsigned found = 0;
    for (int piece = 0; piece < pieces; ++piece) {
      found |= ((united[piece * words + block / 32] >> (block % 32)) & 1) << piece;
    }
    return found;
  }
};

// Lists the columns that some piece keeps; returns how many. `columns` has room for one bit each.
__device__ int ListColumns(const StripParams& p, const UnitedPieces& tile, uint32_t* columns,
                           int32_t* entries, int (&warp_counts)[kWarps]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int words = (p.depth + 31) / 32, share = (words + kWarps - 1) / kWarps;
  const int begin = min(warp * share, words), end = min(begin + share, words);
  int mine = 0;
  for (int w = begin; w < end; ++w) {
    const int k = 32 * w + lane;
    const uint32_t bits =
        tile.block_size == 1 ? tile.Word(w) : __ballot_sync(~0u, k < p.depth && tile.Live(k) != 0);
    if (lane == 0) columns[w] = bits;
    mine += __popc(bits);
  }
  auto [at, total] = PartOfWarp(mine, warp_counts);
  for (int w = begin; w < end; ++w) at = ListWord(columns[w], w, at, entries);
  return total;
}

// One tile of pieces a block: for each slab that some piece keeps, which of them do.
__global__ void __launch_bounds__(kThreads)
    PieceIndexKernel(const __grid_constant__ StripParams p) {
  extern __shared__ uint32_t united[];
  __shared__ int warp_counts[kWarps];
  LetNextStart();
  const int64_t list = blockIdx.x / p.index.piece_tiles;
  const int pieces = p.index.tile_pieces;
  const int row = static_cast<int>(blockIdx.x % p.index.piece_tiles) * pieces * kPieceRows;
  const UnitedPieces tile = {united, pieces, static_cast<int>(p.a_bits.row_words),
                             static_cast<uint32_t>(p.a_bits.col_size)};
  UnitePieces(p, list, row, pieces, united);
  int32_t* entries = p.index.piece_entries + int64_t{blockIdx.x} * p.slabs;
  const int slabs = Compact(p.slabs, entries, warp_counts, [&](int s) {
    const unsigned live = tile.Live(s * p.slab);
    return live != 0 ? static_cast<int>((s << kTilePieces) | live) : -1;
  });
  if (threadIdx.x == 0) p.index.piece_slabs[blockIdx.x] = slabs;
}

// One tile a block: blockIdx.y is 0 for the tall one, 1 and 2 for the wide ones in it.
__global__ void __launch_bounds__(kThreads)
    StripIndexKernel(const __grid_constant__ StripParams p) {
  extern __shared__ uint32_t united[];
  __shared__ int warp_counts[kWarps];
  LetNextStart();
  const bool wide = blockIdx.y != 0, all = p.a_bits.words == nullptr;
  const int64_t list = blockIdx.x / p.index.tall_tiles;
  const int row = static_cast<int>(blockIdx.x % p.index.tall_tiles) * kTallRows +
                  (blockIdx.y == 2 ? kWideRows : 0);
  const int64_t place = wide ? 2 * int64_t{blockIdx.x} + blockIdx.y - 1 : blockIdx.x;
  const UnitedPieces tile = {united, wide ? 2 : 4, all ? 1 : static_cast<int>(p.a_bits.row_words),
                             all ? p.depth : static_cast<uint32_t>(p.a_bits.col_size)};
  UnitePieces(p, list, row, tile.pieces, united);
  int32_t* entries = p.index.entries[wide] + place * p.index.pitch;
  int slabs = 0;
  if (p.boxes) {
    slabs = Compact(p.slabs, entries, warp_counts, [&](int s) {
      const unsigned live = tile.Live(s * p.slab);
      return live != 0 ? static_cast<int>(16 * s + live) : -1;
    });
  } else {
    int count = ListColumns(p, tile, united + tile.pieces * tile.words, entries, warp_counts);
    __syncthreads();
    if (5 * int64_t{count} > 4 * int64_t{p.depth}) {  // runs load faster than picked columns
      for (int i = threadIdx.x; i < p.depth; i += kThreads) entries[i] = i;
      count = p.depth;
    }
    slabs = (count + p.slab - 1) / p.slab;
    for (int i = count + threadIdx.x; i < slabs * p.slab; i += kThreads) entries[i] = -1;
  }
  if (threadIdx.x == 0) p.index.slabs[wide][place] = slabs;
}

// Whether an output of rows [begin, end) in the block of columns is wanted.
__device__ bool Wanted(const BlockBits& bits, const StripParams& p, int64_t list, uint32_t begin,
                       uint32_t end, int block) {
  const auto row_size = static_cast<uint32_t>(bits.row_size);
  const auto col_size = static_cast<uint32_t>(bits.col_size);
  const uint32_t first = static_cast<uint32_t>(block * kColumnBlock) / col_size;
  const uint32_t last =
      static_cast<uint32_t>(min((block + 1) * kColumnBlock, p.columns) - 1) / col_size;
  for (uint32_t row = begin / row_size; row <= (end - 1) / row_size; ++row) {
    const uint32_t* words =
        bits.words + ((bits.lists == 1 ? 0 : list) * bits.rows + row) * bits.row_words;
    for (uint32_t w = first / 32; w <= last / 32; ++w) {
      const uint32_t low = w == first / 32 ? ~0u << (first % 32) : ~0u;
      const uint32_t high = w == last / 32 ? ~0u >> (31 - last % 32) : ~0u;
      if ((words[w] & low & high) != 0) return true;
    }
  }
  return false;
}

// The blocks of columns of one tile: live ones first, then the others.
__global__ void __launch_bounds__(kThreads)
    ColumnIndexKernel(const __grid_constant__ StripParams p) {
  __shared__ int warp_counts[kWarps];
  LetNextStart();
  const bool wide = blockIdx.y == 1;
  const int rows = wide ? kWideRows : kTallRows;
  const int tiles = p.index.tall_tiles << wide;
  const int64_t tile = blockIdx.x;
  if (tile >= static_cast<int64_t>(p.index.out_lists) * tiles) return;
  const int64_t list = tile / tiles;
  const int begin = static_cast<int>(tile % tiles) * rows, end = min(begin + rows, p.rows);
  int32_t* blocks = p.index.blocks[wide] + tile * p.column_blocks;
  const auto pick = [&](bool wanted) {
    return [&, wanted](int b) {
      return (begin < end && Wanted(p.out_bits, p, list, begin, end, b)) == wanted ? b : -1;
    };
  };
  const int live = Compact(p.column_blocks, blocks, warp_counts, pick(true));
  Compact(p.column_blocks, blocks + live, warp_counts, pick(false));
  if (threadIdx.x == 0) p.index.live_blocks[wide][tile] = live;
}

int SharedBytes(const StripParams& p) {
  const int words = p.a_bits.words == nullptr ? 1 : static_cast<int>(p.a_bits.row_words);
  return 16 * words + (p.boxes ? 0 : (p.depth + 31) / 32 * 4);
}

}  // namespace

cudaError_t LaunchStripIndex(const StripParams& p, cudaStream_t stream) {
  if (p.index.tile_pieces > 0) {
    const int bytes = p.index.tile_pieces * 4 * static_cast<int>(p.a_bits.row_words);
    PieceIndexKernel<<<p.index.lists * p.index.piece_tiles, kThreads, bytes, stream>>>(p);
    return cudaGetLastError();
  }
  const dim3 tiles(p.index.lists * p.index.tall_tiles, 3);
  StripIndexKernel<<<tiles, kThreads, SharedBytes(p), stream>>>(p);
  cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess || p.out_bits.words == nullptr) return status;
  const dim3 grid(2 * p.index.out_lists * p.index.tall_tiles, 2);
  ColumnIndexKernel<<<grid, kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

cudaError_t PrepareStripIndex() {
  cudaError_t status = PrepareKernel(&StripIndexKernel, 16 * kMaxMaskWords + kMaxDepth / 8);
  if (status == cudaSuccess) {  // a block is a slab or more: 32 columns of float32
    status = PrepareKernel(&PieceIndexKernel, kTilePieces * (kMaxDepth / 32) / 8);
  }
  return status == cudaSuccess ? PrepareKernel(&ColumnIndexKernel, 0) : status;
}

}  // namespace jaxsparse
