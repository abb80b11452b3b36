// Turns the kept pieces of a transposed matrix: a piece of 32 rows and a slab of K lies as rows of
// K, and the tensor cores read TF32 with K contiguous only. What is left out is not touched:
// turning the whole matrix costs its bytes twice, whatever the mask keeps.
//
// Floor: the kept pieces read and written once at 4.3 TB/s.
// Tile:  a warp turns a piece's slab, 4 KB, through shared memory.
// Measured (H200, 4096 x 4096 float32): 12 us where 5 % is kept (floor 2: latency), 32 where half
// is (16).
#include <algorithm>

#include "cuda/core/device.h"
#include "cuda/core/launch.h"
#include "cuda/core/overlap.cuh"
#include "cuda/kernels/masked_matmul/strips.h"

namespace jaxsparse {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

// Rounded to nearest: the tensor cores would cut TF32 off.
__device__ __forceinline__ uint32_t Rounded(uint32_t v) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(__uint_as_float(v)));
  return bits;
}
__device__ __forceinline__ uint16_t Rounded(uint16_t v) { return v; }

// One slab of one piece: [K, 32] at `from`, whose rows are `pitch` long, to [32, K] at `to`. Rows
// past `rows` and K past `depth` become zeros.
template <typename U>
__device__ __forceinline__ void TurnPiece(const U* from, int64_t pitch, int rows, int depth,
                                          U (&tile)[kSlabBytes / sizeof(U)][kPieceRows + 1],
                                          U* to) {
  constexpr int kSlab = kSlabBytes / sizeof(U);
  const int lane = threadIdx.x % 32;
#pragma unroll 32
  for (int k = 0; k < kSlab; ++k) {
    tile[k][lane] = k < depth && lane < rows ? Rounded(from[k * pitch + lane]) : U{};
  }
  __syncwarp();
#pragma unroll 16
  for (int i = lane; i < kPieceRows * kSlab; i += 32) to[i] = tile[i % kSlab][i / kSlab];
  __syncwarp();
}

// A warp takes one of the pieces in a visit of a tile, where that keeps the slab.
template <typename U>
__global__ void __launch_bounds__(kThreads) PieceTurnKernel(const __grid_constant__ StripParams p) {
  constexpr int kSlab = kSlabBytes / sizeof(U);
  __shared__ U turned[kWarps][kSlab][kPieceRows + 1];
  LetNextStart();
  WaitForPrevious();
  const int64_t pieces = (p.rows + kPieceRows - 1) / kPieceRows;
  const int64_t tiles = int64_t{p.pack_lists} * p.index.piece_tiles;
  for (int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
       i < tiles * p.slabs * p.index.tile_pieces; i += int64_t{gridDim.x} * kWarps) {
    const int which = static_cast<int>(i % p.index.tile_pieces);
    const int64_t visit = i / p.index.tile_pieces, place = visit % tiles, s = visit / tiles;
    const int64_t list = place / p.index.piece_tiles, tile = place % p.index.piece_tiles;
    const int64_t listed = p.index.lists == 1 ? tile : place;
    // Asked for together; an entry past the listed ones means nothing.
    const int steps = __ldg(p.index.piece_slabs + listed);
    const int entry = __ldg(p.index.piece_entries + listed * p.slabs + s);
    if (s >= steps || ((entry >> which) & 1) == 0) continue;
    const int slab = entry >> kTilePieces;
    const int64_t piece = tile * p.index.tile_pieces + which, row = piece * kPieceRows;
    const U* from = static_cast<const U*>(p.a) +
                    (p.a_lists == 1 ? 0 : list) * int64_t{p.depth} * p.rows +
                    int64_t{slab} * kSlab * p.rows + row;
    U* to =
        static_cast<U*>(p.packed) + ((list * pieces + piece) * p.slabs + slab) * kPieceRows * kSlab;
    TurnPiece(from, p.rows, static_cast<int>(p.rows - row), p.depth - slab * kSlab,
              turned[threadIdx.x / 32], to);
  }
}

template <typename U>
cudaError_t Launch(const StripParams& p, cudaStream_t stream) {
  const int64_t units = int64_t{p.pack_lists} * p.index.piece_tiles * p.slabs * p.index.tile_pieces;
  const auto grid = static_cast<unsigned>(std::min(CeilDiv(units, kWarps), MultiProcessors() * 6));
  return LaunchOverlapped(&PieceTurnKernel<U>, dim3(grid), kThreads, 0, stream, p);
}

}  // namespace

cudaError_t LaunchPieceTurn(const StripParams& p, DType type, cudaStream_t stream) {
  return type == DType::kF32 ? Launch<uint32_t>(p, stream) : Launch<uint16_t>(p, stream);
}

cudaError_t PreparePieceTurn() {
  const cudaError_t status = PrepareKernel(&PieceTurnKernel<uint32_t>, 0);
  return status == cudaSuccess ? PrepareKernel(&PieceTurnKernel<uint16_t>, 0) : status;
}

}  // namespace jaxsparse
