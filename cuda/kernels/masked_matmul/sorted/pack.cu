// Packing for tiles of sorted columns: what each piece of 32 rows keeps of each step of a slab, as
// the tensor cores read it: blocks of 1 KB one after the other, in them 8 rows by 16 bytes of K
// side by side.
//
// The kept columns of a row lie anywhere in it, two or four bytes each, so a block of threads has
// whole rows brought to shared memory and picks there. The rows are on their way before the index
// in front is done.
//
// Floor: `a` once at 4.3 TB/s, 8 us for 4096 x 4096 in 16 bits, and what is kept written.
// Measured (H200, 32x1, behind an index of 4.5 us): 12 us at 90 %, 20 at 50 %; 6 at 99 %, where
// elements are picked out of the matrix one by one.
#include "cuda/bits/pack_bytes.cuh"
#include "cuda/core/bulk_load.cuh"
#include "cuda/core/dtype.cuh"
#include "cuda/core/launch.h"
#include "cuda/core/mbarrier.cuh"
#include "cuda/core/overlap.cuh"
#include "cuda/core/warpgroup.cuh"
#include "cuda/kernels/masked_matmul/strips.h"

namespace jaxsparse {
namespace {

constexpr int kThreads = 128, kRows = 2;
constexpr int kFew = 40;  // rows that keep less than this part are not brought as a whole

// An element's bits. TF32 operands are rounded here: the tensor cores would cut them off.
__device__ __forceinline__ uint32_t Rounded(uint32_t v) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(__uint_as_float(v)));
  return bits;
}
__device__ __forceinline__ uint32_t Rounded(uint16_t v) { return v; }

template <typename U>
struct RowsShared {
  static constexpr int kEach = 16 / sizeof(U);  // elements of 16 bytes
  // Rows lie 16 bytes off each other's banks.
  uint8_t rows[kRows][kSortWindow * sizeof(U) + 16];
  int2 visits[kSortWindow / 32];  // live steps, blocks before the slab
  uint64_t full;
  bool few;
};

// Which rows a block packs: a part of a piece of a tile.
struct PackedRows {
  int64_t list, tile;  // of the pack; the tile among all of them
  int row, piece, group;

  __device__ static PackedRows Here(const StripParams& p) {
    constexpr int kParts = kPieceRows / kRows;
    PackedRows r;
    const int part = blockIdx.x % kParts;
    r.piece = blockIdx.x / kParts % kPanelPieces;
    r.tile = blockIdx.x / (kParts * kPanelPieces);
    r.list = r.tile / p.index.piece_tiles;
    r.group = part * kRows;
    r.row = static_cast<int>(r.tile - r.list * p.index.piece_tiles) * kPanelPieces * kPieceRows +
            r.piece * kPieceRows + r.group;
    return r;
  }
};

// The block's first row in the matrix.
template <typename U>
__device__ __forceinline__ const U* FirstRow(const StripParams& p, const PackedRows& r) {
  return static_cast<const U*>(p.a) +
         ((p.a_lists == 1 ? 0 : r.list) * p.rows + r.row) * int64_t{p.depth};
}

// Whether the piece keeps so little, by 32 words of its mask, that its elements are picked out of
// the matrix one by one. All lanes of a warp call this.
__device__ __forceinline__ bool KeepsFew(const StripParams& p, const PackedRows& r) {
  const BlockBits& bits = p.a_bits;
  const int64_t line = (bits.lists == 1 ? 0 : r.list) * bits.rows + r.row / bits.row_size;
  const int64_t word = bits.row_words * (threadIdx.x % 32) / 32;
  uint32_t kept = 0;
  if (bits.is_bools) {
    const MaskBytes bools(reinterpret_cast<const uint8_t*>(bits.words),
                          bits.lists * bits.rows * bits.columns, bits.columns);
    kept = bools.Load(line, word);
  } else {
    kept = __ldg(bits.words + line * bits.row_words + word);
  }
  return kFew * __reduce_add_sync(~0u, __popc(kept)) < 32 * 32;
}

// One thread: the rows' part of a window.
template <typename U>
__device__ __forceinline__ void LoadWindow(const StripParams& p, const PackedRows& r, int window,
                                           RowsShared<U>& s) {
  const int first = window * kSortWindow, rows = min(p.rows - r.row, kRows);
  const uint32_t bytes = min(p.depth - first, kSortWindow) * static_cast<int>(sizeof(U));
  const uint32_t full = ptx::SharedAddress(&s.full);
  if (rows <= 0) return;
  ptx::BarrierArriveExpect(full, rows * bytes);
  const U* a = FirstRow<U>(p, r) + first;
  for (int i = 0; i < rows; ++i) {
    ptx::LoadBulk(ptx::SharedAddress(s.rows[i]), a + int64_t{i} * p.depth, bytes, full);
  }
}

// Packs a window's slabs: 16 bytes a thread, of one row and as many columns.
template <typename U>
__device__ __forceinline__ void PackWindow(const StripParams& p, const PackedRows& r, int first,
                                           const int32_t* columns, int slabs, bool few,
                                           const RowsShared<U>& s) {
  constexpr int kEach = RowsShared<U>::kEach, kLanes = 2 * kRows;
  constexpr int kSlab = kSlabBytes / sizeof(U), kStep = kSlab / kSlabSteps;
  const int row = threadIdx.x % kRows, half = threadIdx.x / kRows % 2;
  const int in_piece = r.group + row;
  char* out = static_cast<char*>(p.packed) +
              r.tile * p.slabs * kPanelPieces * kPieceRows * kSlabBytes + in_piece / 8 * 256 +
              half * 128 + in_piece % 8 * 16;
  const bool inside = r.row + row < p.rows;
  const U* window = few ? FirstRow<U>(p, r) + int64_t{row} * p.depth + first
                        : reinterpret_cast<const U*>(s.rows[row]);
#pragma unroll 2
  for (int i = threadIdx.x / kLanes; i < slabs * kSlabSteps; i += kThreads / kLanes) {
    const int slab = i / kSlabSteps, bit = i % kSlabSteps * kPanelPieces + r.piece;
    const int2 visit = s.visits[slab];
    if (((visit.x >> bit) & 1) == 0) continue;
    const int4* from = reinterpret_cast<const int4*>(columns + slab * kSlab +
                                                     i % kSlabSteps * kStep + half * kEach);
    uint32_t packed[4] = {};
#pragma unroll
    for (int part = 0; part < kEach / 4; ++part) {
      const int4 four = __ldg(from + part);
      const int entries[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int column = (entries[j] & kColumnMask) - first;
        const bool keeps = inside && ((entries[j] >> (kPiecesShift + r.piece)) & 1) != 0;
        const int at = part * 4 + j;
        packed[at * sizeof(U) / 4] |= (keeps ? Rounded(window[column]) : 0u)
                                      << (8 * sizeof(U) * at % 32);
      }
    }
    const int64_t block = visit.y + __popc(visit.x & ((1 << bit) - 1));
    *reinterpret_cast<uint4*>(out + block * kBlockBytes) =
        make_uint4(packed[0], packed[1], packed[2], packed[3]);
  }
}

template <typename U>
__global__ void __launch_bounds__(kThreads)
    SortedPackKernel(const __grid_constant__ StripParams p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) uint8_t raw[];
  auto& s = *reinterpret_cast<RowsShared<U>*>(raw);
  constexpr int kSlab = kSlabBytes / sizeof(U);
  const PackedRows r = PackedRows::Here(p);
  LetNextStart();
  if (r.row / kPieceRows * kPieceRows >= p.rows) return;  // a piece outside of the matrix
  if (threadIdx.x < 32) {
    const bool few = KeepsFew(p, r);
    if (threadIdx.x == 0) {
      ptx::BarrierInit(ptx::SharedAddress(&s.full), 1);
      ptx::FenceBarrierInit();
      s.few = few;
      if (!few) LoadWindow(p, r, 0, s);
    }
  }
  __syncthreads();
  const bool few = s.few;
  WaitForPrevious();
  const SortedIndex& sorted = p.index.sorted;
  const int64_t listed = p.index.lists == 1 ? r.tile - r.list * p.index.piece_tiles : r.tile;
  int begin = 0;
  for (int window = 0; window < sorted.windows; ++window) {
    const int end = sorted.ends[listed * sorted.windows + window];
    for (int i = threadIdx.x; i < end - begin; i += kThreads) {
      const int64_t at = listed * p.slabs + begin + i;
      s.visits[i] = make_int2(p.index.piece_entries[at], sorted.blocks[at]);
    }
    __syncthreads();
    if (!few && r.row < p.rows) ptx::BarrierWait(ptx::SharedAddress(&s.full), window % 2);
    PackWindow(p, r, window * kSortWindow, sorted.columns + (listed * p.slabs + begin) * kSlab,
               end - begin, few, s);
    begin = end;
    __syncthreads();
    if (!few && window + 1 < sorted.windows && threadIdx.x == 0) {
      ptx::FenceAsyncProxy();
      LoadWindow(p, r, window + 1, s);
    }
  }
#endif
}

template <typename U>
cudaError_t Launch(const StripParams& p, cudaStream_t stream) {
  const int64_t blocks =
      int64_t{p.pack_lists} * p.index.piece_tiles * kPanelPieces * (kPieceRows / kRows);
  return LaunchOverlapped(&SortedPackKernel<U>, dim3(static_cast<unsigned>(blocks)), kThreads,
                          sizeof(RowsShared<U>), stream, p);
}

}  // namespace

cudaError_t LaunchSortedPack(const StripParams& p, DType type, cudaStream_t stream) {
  return type == DType::kF32 ? Launch<uint32_t>(p, stream) : Launch<uint16_t>(p, stream);
}

cudaError_t PrepareSortedPack() {
  const cudaError_t status =
      PrepareKernel(&SortedPackKernel<uint32_t>, sizeof(RowsShared<uint32_t>));
  return status == cudaSuccess
             ? PrepareKernel(&SortedPackKernel<uint16_t>, sizeof(RowsShared<uint16_t>))
             : status;
}

}  // namespace jaxsparse
