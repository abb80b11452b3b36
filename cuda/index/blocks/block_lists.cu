// Floor: the codes once, and two integers for each listed block in each direction. A list's rest is
// not written: where few blocks are listed, that would be most of the bytes.
//
// The CTAs of an image follow each other, those of its columns first, so that the second read of a
// code is served by the second-level cache. A warp lists a row: a ballot tells each lane its place.
// A CTA lists 32 columns, a lane a column: 256 rows at a time come in rows of 128 bytes, each warp
// counts its 32 rows, and after the sum over the warps transposes them in shared memory, so that a
// warp writes 32 rows of one column side by side.
#include "cuda/index/blocks/block_lists.h"

#include "cuda/core/launch.h"

namespace jaxsparse {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kLoads = 16;  // of a row's codes in flight, a lane
constexpr int kMinCtas = 4;
constexpr int32_t kFull = -1, kNone = -2;

struct Shared {
  int32_t codes[kWarps][32][33];  // padded: no bank conflict along either axis
  int32_t counts[kWarps][32];
};

// Of 32 neighbours in a line, in a lane each: how many before this lane are listed, and how many.
struct Rank {
  __device__ explicit Rank(bool listed) : ballot(__ballot_sync(~0u, listed)) {}
  __device__ int Before() const { return __popc(ballot & ((1u << threadIdx.x % 32) - 1)); }
  __device__ int All() const { return __popc(ballot); }
  unsigned ballot;
};

__device__ void ListRow(const BlockListsArgs& args, int64_t line) {
  const int lane = threadIdx.x % 32;
  const int64_t first = line * args.columns;
  int32_t listed = 0;
  for (int64_t base = 0; base < args.columns; base += 32 * kLoads) {
    int32_t codes[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int64_t column = base + 32 * i + lane;
      codes[i] = column < args.columns ? __ldg(args.codes + first + column) : kNone;
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const Rank rank(codes[i] >= kFull);
      if (codes[i] >= kFull) {
        const int64_t at = first + listed + rank.Before();
        args.by_row.blocks[at] = static_cast<int32_t>(base + 32 * i + lane);
        args.by_row.slots[at] = codes[i];
      }
      listed += rank.All();
    }
  }
  if (lane == 0) args.by_row.counts[line] = listed;
}

__device__ void ListColumns(const BlockListsArgs& args, int64_t image, int64_t first,
                            Shared& shared) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int columns = static_cast<int>(min(args.columns - first, int64_t{32}));
  const int32_t* codes = args.codes + image * args.rows * args.columns + first + lane;
  const int64_t lines = image * args.columns + first;
  int32_t listed = 0;  // of this lane's column, in the rows above
  for (int64_t top = 0; top < args.rows; top += 32 * kWarps) {
    const int64_t row = top + 32 * warp;
    const int rows = lane < columns ? static_cast<int>(min(args.rows - row, int64_t{32})) : 0;
    int32_t loaded[32], found = 0;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      loaded[i] = i < rows ? __ldg(codes + (row + i) * args.columns) : kNone;
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      shared.codes[warp][i][lane] = loaded[i];
      found += loaded[i] >= kFull;
    }
    shared.counts[warp][lane] = found;
    __syncthreads();
    int32_t before = listed;  // in the rows above this warp's
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      const int32_t of_warp = shared.counts[i][lane];
      before += i < warp ? of_warp : 0;
      listed += of_warp;
    }
    for (int c = 0; c < columns; ++c) {
      const int32_t code = shared.codes[warp][lane][c];
      const Rank rank(code >= kFull);
      const int32_t begin = __shfl_sync(~0u, before, c);
      if (code >= kFull) {
        const int64_t at = (lines + c) * args.rows + begin + rank.Before();
        args.by_column.blocks[at] = static_cast<int32_t>(row + lane);
        args.by_column.slots[at] = code;
      }
    }
    __syncthreads();  // before the next rows take the place of these
  }
  if (warp == 0 && lane < columns) args.by_column.counts[lines + lane] = listed;
}

// An image has `column_ctas` of its columns, then those of its rows, `ctas` together.
__global__ void __launch_bounds__(kThreads, kMinCtas)
    ListLines(const __grid_constant__ BlockListsArgs args, uint32_t column_ctas, uint32_t ctas) {
  __shared__ Shared shared;
  const int64_t image = blockIdx.x / ctas;
  const uint32_t part = blockIdx.x % ctas;
  if (part < column_ctas) {
    ListColumns(args, image, int64_t{32} * part, shared);
    return;
  }
  const int64_t row = int64_t{kWarps} * (part - column_ctas) + threadIdx.x / 32;
  if (row < args.rows) ListRow(args, image * args.rows + row);
}

}  // namespace

cudaError_t ListBlocks(const BlockListsArgs& args, cudaStream_t stream) {
  const int64_t column_ctas = CeilDiv(args.columns, 32);
  const int64_t ctas = column_ctas + CeilDiv(args.rows, kWarps);
  if (args.images * ctas == 0) return cudaSuccess;
  ListLines<<<static_cast<unsigned>(args.images * ctas), kThreads, 0, stream>>>(
      args, static_cast<uint32_t>(column_ctas), static_cast<uint32_t>(ctas));
  return cudaGetLastError();
}

cudaError_t PrepareListBlocks() { return PrepareKernel(ListLines, 0); }

}  // namespace jaxsparse
