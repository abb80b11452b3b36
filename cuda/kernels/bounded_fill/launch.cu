// Rows of a small table written to chosen rows of a result: decided pixels that somebody reads
// after all, and outputs that see decided pixels only.
//
// Floor: the rows that are chosen, once; of the others 4 bytes.
#include "cuda/kernels/bounded_fill/launch.h"

#include <algorithm>

#include "cuda/tile/store/table_rows.cuh"

namespace jaxsparse {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 15;

template <typename Chunk>
__global__ void __launch_bounds__(kThreads)
    FillRows(const __grid_constant__ BoundedFillArgs args, int64_t chunks) {
  const int64_t lane = threadIdx.x % 32, step = static_cast<int64_t>(gridDim.x) * kThreads;
  const Chunk* const table = static_cast<const Chunk*>(args.table);
  Chunk* const out = static_cast<Chunk*>(args.out);
  int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x - lane;
  for (; first < args.rows; first += step) {
    const int32_t mine = first + lane < args.rows ? __ldg(args.select + first + lane) : -1;
    const bool chosen = mine >= 0 && mine < args.entries;
    WriteRows(table, out, first, chunks, chosen ? mine : kLeftAlone);
  }
}

template <typename Chunk>
void Launch(const BoundedFillArgs& args, cudaStream_t stream) {
  const int64_t blocks = std::min((args.rows + kThreads - 1) / kThreads, kMostBlocks);
  const int64_t chunks = args.bytes / static_cast<int64_t>(sizeof(Chunk));
  FillRows<Chunk><<<blocks, kThreads, 0, stream>>>(args, chunks);
}

}  // namespace

cudaError_t LaunchBoundedFill(const BoundedFillArgs& args, cudaStream_t stream) {
  if (args.rows == 0 || args.bytes == 0) return cudaSuccess;
  WithChunk(args.table, args.out, args.bytes,
            [&](auto chunk) { Launch<decltype(chunk)>(args, stream); });
  return cudaGetLastError();
}

}  // namespace jaxsparse
