// The lists of a mask whose listed blocks are all full, from one byte for each block.
//
// Floor: the bytes once, and two integers for each listed block in each direction.
//
// A warp takes 32 bytes of a row in each lane, as a word of bits. A warp lists a row: one word
// after the other, a lane for each of its bits. A CTA lists 32 columns, 512 rows at a time: a
// lane's word is that of a row, and ballots turn 32 of them. Entries are collected in shared
// memory, and written in order.
#include "cuda/core/launch.h"
#include "cuda/index/blocks/block_lists.h"

namespace jaxsparse {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kMinCtas = 4;
constexpr int kChunks = 16, kTop = 32 * kChunks;  // rows that a CTA of columns takes at a time
constexpr int kWarpChunks = kChunks / kWarps;
constexpr int kAcross = 32 * 32;  // columns that a warp of a row takes at a time
constexpr int32_t kFull = -1;

union Shared {
  uint16_t rows[kWarps][kAcross];
  struct {
    uint16_t lists[32][kTop];
    uint16_t counts[kChunks][32];
  } columns;
};

__device__ int Before(uint32_t word) { return __popc(word & ((1u << threadIdx.x % 32) - 1)); }

// The lowest bits of 16 bytes.
__device__ uint32_t Pack(uint4 v) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
  uint32_t found = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) found |= (words[i] & 0x01010101u) * 0x10204080u >> 28 << 4 * i;
  return found;
}

// Those of 32 bytes, of which `left` exist. `aligned`: the first is, to 16 bytes.
__device__ __forceinline__ uint32_t LoadWord(const uint8_t* from, int64_t left, bool aligned) {
  if (aligned && left >= 32) {
    const auto* wide = reinterpret_cast<const uint4*>(from);
    const uint4 low = __ldg(wide), high = __ldg(wide + 1);
    return Pack(low) | Pack(high) << 16;
  }
  uint32_t word = 0;
  for (int i = 0; i < min(left, int64_t{32}); ++i) word |= (__ldg(from + i) & 1u) << i;
  return word;
}

// Entries `from` + 0 and on of a list.
__device__ __forceinline__ void WriteList(const BlockLines& lines, int64_t at, const uint16_t* list,
                                          int count, int64_t from) {
  for (int i = threadIdx.x % 32; i < count; i += 32) {
    lines.blocks[at + i] = static_cast<int32_t>(from + list[i]);
    lines.slots[at + i] = kFull;
  }
}

__device__ void ListRow(const BlockListsArgs& args, int64_t line, bool aligned, uint16_t* list) {
  const int lane = threadIdx.x % 32;
  const int64_t first = line * args.columns;
  int64_t listed = 0;
  for (int64_t base = 0; base < args.columns; base += kAcross) {
    const int64_t column = base + 32 * lane;
    const uint32_t mine = LoadWord(args.active + first + column, args.columns - column, aligned);
    int count = 0;
    const int words = static_cast<int>(min((args.columns - base + 31) / 32, int64_t{32}));
    for (int w = 0; w < words; ++w) {
      const uint32_t word = __shfl_sync(~0u, mine, w);
      if (word >> lane & 1) list[count + Before(word)] = static_cast<uint16_t>(32 * w + lane);
      count += __popc(word);
    }
    __syncwarp();
    WriteList(args.by_row, first + listed, list, count, base);
    __syncwarp();  // before the next columns take the place of these
    listed += count;
  }
  if (lane == 0) args.by_row.counts[line] = static_cast<int32_t>(listed);
}

__device__ void ListColumns(const BlockListsArgs& args, int64_t image, int64_t first, bool aligned,
                            Shared& shared) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  auto& own = shared.columns;
  const int64_t left = args.columns - first, lines = image * args.columns + first;
  const uint8_t* const from = args.active + image * args.rows * args.columns + first;
  int64_t listed = 0;  // of this lane's column, in the rows above
  for (int64_t top = 0; top < args.rows; top += kTop) {
    uint32_t words[kWarpChunks];
#pragma unroll
    for (int i = 0; i < kWarpChunks; ++i) {
      const int chunk = i * kWarps + warp;
      const int64_t row = top + 32 * chunk + lane;
      words[i] = LoadWord(from + row * args.columns, row < args.rows ? left : 0, aligned);
    }
#pragma unroll
    for (int i = 0; i < kWarpChunks; ++i) {
      int found = 0;
#pragma unroll
      for (int c = 0; c < 32; ++c) {
        const int of_column = __popc(__ballot_sync(~0u, words[i] >> c & 1));
        found = c == lane ? of_column : found;
      }
      own.counts[i * kWarps + warp][lane] = static_cast<uint16_t>(found);
    }
    __syncthreads();
    int before[kWarpChunks] = {}, all = 0;  // of this lane's column, above each of the chunks
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
      for (int i = 0; i < kWarpChunks; ++i)
        before[i] = chunk == i * kWarps + warp ? all : before[i];
      all += own.counts[chunk][lane];
    }
#pragma unroll
    for (int i = 0; i < kWarpChunks; ++i) {
      const auto row = static_cast<uint16_t>(32 * (i * kWarps + warp) + lane);
#pragma unroll 8
      for (int c = 0; c < 32; ++c) {
        const uint32_t column = __ballot_sync(~0u, words[i] >> c & 1);
        const int begin = __shfl_sync(~0u, before[i], c);
        if (words[i] >> c & 1) own.lists[c][begin + Before(column)] = row;
      }
    }
    __syncthreads();
    for (int c = warp; c < min(left, int64_t{32}); c += kWarps) {
      const int count = __shfl_sync(~0u, all, c);
      const int64_t done = __shfl_sync(~0u, listed, c);
      WriteList(args.by_column, (lines + c) * args.rows + done, own.lists[c], count, top);
    }
    listed += all;
    __syncthreads();  // before the next rows take the place of these
  }
  if (warp == 0 && lane < left) args.by_column.counts[lines + lane] = static_cast<int32_t>(listed);
}

// An image has `column_ctas` of its columns, then those of its rows, `ctas` together.
__global__ void __launch_bounds__(kThreads, kMinCtas)
    ListSetBits(const __grid_constant__ BlockListsArgs args, uint32_t column_ctas, uint32_t ctas,
                bool aligned) {
  __shared__ Shared shared;
  const int64_t image = blockIdx.x / ctas;
  const uint32_t part = blockIdx.x % ctas;
  if (part < column_ctas) {
    ListColumns(args, image, int64_t{32} * part, aligned, shared);
    return;
  }
  const int warp = threadIdx.x / 32;
  const int64_t row = int64_t{kWarps} * (part - column_ctas) + warp;
  if (row < args.rows) ListRow(args, image * args.rows + row, aligned, shared.rows[warp]);
}

}  // namespace

cudaError_t ListActive(const BlockListsArgs& args, cudaStream_t stream) {
  const int64_t column_ctas = CeilDiv(args.columns, 32);
  const int64_t ctas = column_ctas + CeilDiv(args.rows, kWarps);
  if (args.images * ctas == 0) return cudaSuccess;
  const bool aligned =
      (args.columns % 16 == 0) && reinterpret_cast<uintptr_t>(args.active) % 16 == 0;
  ListSetBits<<<static_cast<unsigned>(args.images * ctas), kThreads, 0, stream>>>(
      args, static_cast<uint32_t>(column_ctas), static_cast<uint32_t>(ctas), aligned);
  return cudaGetLastError();
}

cudaError_t PrepareListActive() { return PrepareKernel(ListSetBits, 0); }

}  // namespace jaxsparse
