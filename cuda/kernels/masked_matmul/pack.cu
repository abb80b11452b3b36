// Packing for a masked product: the kept entries of `a` in stages as the tensor cores read them,
// and a copy of `b` without its masked entries.
//
// Small pieces are condensed into dense tiles once a call rather than once a tile of columns: a
// 32x1 piece is one element wide, and picking it costs a load each.
//
// Floor: `a` once at 4.3 TB/s, its kept entries written; `b` read and written where it has a mask.
// Measured (H200, 4096 x 4096 in 16 bits): 32 us where tiles take all columns, 16 bytes at a time
// (48 element by element, floor 16); 32x1 at 90 % 17 us, at 99 % 10 us, most of it latency.
#include <algorithm>

#include "cuda/core/device.h"
#include "cuda/core/element.cuh"
#include "cuda/core/launch.h"
#include "cuda/core/overlap.cuh"
#include "cuda/kernels/masked_matmul/bits.cuh"
#include "cuda/kernels/masked_matmul/choice.cuh"

namespace jaxsparse {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kUnitRows = 8;  // a warp packs them together

// An element's bits. TF32 operands are rounded here: the tensor cores would cut them off.
__device__ __forceinline__ uint32_t PackedBits(float v) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
  return bits;
}
__device__ __forceinline__ uint32_t PackedBits(__nv_bfloat16 v) { return __bfloat16_as_ushort(v); }
__device__ __forceinline__ uint32_t PackedBits(__half v) { return __half_as_ushort(v); }

// A warp's unit of work: eight rows of one slab of one tile.
struct PackUnit {
  int64_t list;
  int row, rows_in;        // of the matrix, of the tile
  const int32_t* columns;  // of the slab
  char* out;               // the slab
};

// The line of the mask that holds row `row`, or the last one.
__device__ __forceinline__ uint32_t Line(int row, int rows, uint32_t row_size) {
  return static_cast<uint32_t>(min(row, rows - 1)) / row_size;
}

// Rows of 128 bytes, their 16-byte chunks in the 128-byte swizzle; a lane has four bytes of each
// row.
template <typename T>
__device__ void PackRows(const StripParams& p, const PackUnit& unit) {
  constexpr int kEach = 4 / sizeof(T);
  const int lane = threadIdx.x % 32;
  const BlockBits& bits = p.a_bits;
  const T* a = static_cast<const T*>(p.a) +
               (p.a_lists == 1 ? 0 : unit.list) * static_cast<int64_t>(p.rows) * p.depth;
  const uint32_t* words =
      bits.words + (bits.lists == 1 ? 0 : unit.list) * bits.rows * bits.row_words;
  const auto row_size = static_cast<uint32_t>(min(bits.row_size, int64_t{p.rows}));
  int k[kEach];
  uint32_t block[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    k[i] = __ldg(unit.columns + lane * kEach + i);
    block[i] = static_cast<uint32_t>(max(k[i], 0)) / static_cast<uint32_t>(bits.col_size);
  }
  // All loads are independent: a masked entry inside of the matrix is read and dropped.
  const uint32_t first_line = Line(unit.row, p.rows, row_size);
  const bool one_line = first_line == Line(unit.row + kUnitRows - 1, p.rows, row_size);
  bool kept[kUnitRows][kEach];
  uint32_t v[kUnitRows];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const bool first = HasBlock(words + first_line * bits.row_words, block[i]);
#pragma unroll
    for (int j = 0; j < kUnitRows; ++j) {
      kept[j][i] = first;
      if (!one_line) {
        const uint32_t line = Line(unit.row + j, p.rows, row_size);
        kept[j][i] = HasBlock(words + line * bits.row_words, block[i]);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kUnitRows; ++j) {
    const int row = min(unit.row + j, p.rows - 1);
    v[j] = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const T entry = __ldg(a + static_cast<int64_t>(row) * p.depth + max(k[i], 0));
      const bool counts = kept[j][i] && k[i] >= 0 && unit.row + j < p.rows;
      v[j] |= (counts ? PackedBits(entry) : 0u) << (16 * i);
    }
  }
#pragma unroll
  for (int j = 0; j < kUnitRows; ++j) {
    const int row = unit.rows_in + j, chunk = (lane / 4) ^ (row % 8);
    *reinterpret_cast<uint32_t*>(unit.out + row * kSlabBytes + chunk * 16 + lane % 4 * 4) = v[j];
  }
}

// One bit for each of `Count` entries of a row of the matrix from column k on, a multiple of Count.
template <int Count>
__device__ __forceinline__ uint32_t KeptEntries(const uint32_t* line, uint32_t k, uint32_t size) {
  constexpr uint32_t kAll = (1u << Count) - 1;
  if (size == 1) return (__ldg(line + k / 32) >> (k % 32)) & kAll;
  if (size % Count == 0) return HasBlock(line, k / size) ? kAll : 0;
  uint32_t kept = 0;
  for (int i = 0; i < Count; ++i) {
    kept |= static_cast<uint32_t>(HasBlock(line, (k + i) / size)) << i;
  }
  return kept;
}

// As PackRows, for columns that follow each other from `first` on: 16 bytes at a time.
template <typename T>
__device__ void PackRun(const StripParams& p, const PackUnit& unit, int first) {
  constexpr int kChunk = 16 / sizeof(T), kEach = kUnitRows * kSlabBytes / 16 / 32;
  const BlockBits& bits = p.a_bits;
  const T* a = static_cast<const T*>(p.a) +
               (p.a_lists == 1 ? 0 : unit.list) * static_cast<int64_t>(p.rows) * p.depth;
  const uint32_t* words =
      bits.words + (bits.lists == 1 ? 0 : unit.list) * bits.rows * bits.row_words;
  const auto row_size = static_cast<uint32_t>(min(bits.row_size, int64_t{p.rows}));
  const int in_row = threadIdx.x % 8, k = first + in_row * kChunk;
  simt::Vector<T, kChunk> v[kEach];
  uint32_t kept[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int row = unit.row + threadIdx.x % 32 / 8 + 4 * i, inside = min(row, p.rows - 1);
    v[i].bits = __ldg(reinterpret_cast<const uint4*>(a + int64_t{inside} * p.depth + k));
    const uint32_t* line = words + Line(row, p.rows, row_size) * bits.row_words;
    kept[i] = KeptEntries<kChunk>(line, k, static_cast<uint32_t>(bits.col_size));
    if (row >= p.rows) kept[i] = 0;
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int row = unit.rows_in + threadIdx.x % 32 / 8 + 4 * i;
    uint32_t packed[4] = {};
#pragma unroll
    for (int j = 0; j < kChunk; ++j) {
      const uint32_t entry = (kept[i] >> j) & 1 ? PackedBits(v[i].lanes[j]) : 0u;
      packed[j * sizeof(T) / 4] |= entry << (8 * sizeof(T) * j % 32);
    }
    *reinterpret_cast<uint4*>(unit.out + row * kSlabBytes + (in_row ^ (row % 8)) * 16) =
        make_uint4(packed[0], packed[1], packed[2], packed[3]);
  }
}

// Units in the order of slabs: those that exist come first, spread over all warps.
template <typename T>
__global__ void __launch_bounds__(kThreads) StripPackKernel(const __grid_constant__ StripParams p) {
  constexpr int kUnits = kTallRows / kUnitRows;  // of a tall tile's slab
  LetNextStart();
  WaitForPrevious();
  const int wide = TakesWide(p), rows = wide ? kWideRows : kTallRows;
  const int64_t tiles = int64_t{p.pack_lists} * p.index.tall_tiles;
  const int64_t step = int64_t{gridDim.x} * kWarps;
  for (int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; i < tiles * kUnits * p.slabs;
       i += step) {
    const int first = static_cast<int>(i % kUnits) * kUnitRows;  // row of the tall tile
    const int64_t rest = i / kUnits, tall = rest % tiles;
    const int slab = static_cast<int>(rest / tiles);
    PackUnit unit;
    unit.list = tall / p.index.tall_tiles;
    const int in_list = static_cast<int>(tall - unit.list * p.index.tall_tiles);
    const int half = first / rows;
    const int64_t listed = ((p.index.lists == 1 ? in_list : tall) << wide) + half;
    if (slab >= __ldg(p.index.slabs[wide] + listed)) continue;
    unit.row = in_list * kTallRows + first;
    unit.rows_in = first - half * rows;
    unit.columns = p.index.entries[wide] + listed * p.index.pitch + slab * p.slab;
    unit.out = static_cast<char*>(p.packed) +
               (((tall << wide) + half) * p.slabs + slab) * rows * kSlabBytes;
    const int run = __ldg(unit.columns), last = __ldg(unit.columns + p.slab - 1);
    if (run >= 0 && last - run == p.slab - 1 && run % (16 / static_cast<int>(sizeof(T))) == 0) {
      PackRun<T>(p, unit, run);
    } else {
      PackRows<T>(p, unit);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) MaskCopyKernel(const __grid_constant__ StripParams p) {
  constexpr int kChunk = 16 / sizeof(T);
  const int64_t list = blockIdx.z, chunks = p.columns / kChunk;
  const int64_t size = static_cast<int64_t>(p.depth) * p.columns;
  const T* in = static_cast<const T*>(p.b) + (p.b_lists == 1 ? 0 : list * size);
  T* out = static_cast<T*>(p.masked_b) + list * size;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < p.depth * chunks; i += step) {
    const int64_t row = i / chunks;
    const uint32_t column = static_cast<uint32_t>(i - row * chunks) * kChunk;
    const uint32_t* words = MaskRow(p.b_bits, list, row);
    const uint32_t size_of = static_cast<uint32_t>(p.b_bits.col_size);
    simt::Vector<T, kChunk> v;
    if (size_of % kChunk == 0) {
      v.bits = uint4{};
      if (HasBlock(words, column / size_of)) {
        v.bits = *reinterpret_cast<const uint4*>(in + row * p.columns + column);
      }
    } else {
#pragma unroll
      for (int j = 0; j < kChunk; ++j) {
        const bool counts = HasBlock(words, (column + j) / size_of);
        v.lanes[j] = counts ? in[row * p.columns + column + j] : simt::FromFloat<T>(0.0f);
      }
    }
    *reinterpret_cast<uint4*>(out + row * p.columns + column) = v.bits;
  }
}

template <typename T>
cudaError_t Launch(const StripParams& p, cudaStream_t stream) {
  if (!p.boxes) {
    const int64_t units =
        int64_t{p.pack_lists} * p.index.tall_tiles * (kTallRows / kUnitRows) * p.slabs;
    const auto grid =
        static_cast<unsigned>(std::min(CeilDiv(units, kWarps), MultiProcessors() * 6));
    const cudaError_t status =
        LaunchOverlapped(&StripPackKernel<T>, dim3(grid), kThreads, 0, stream, p);
    if (status != cudaSuccess) return status;
  }
  if (p.masked_b == nullptr) return cudaSuccess;
  const int lists = std::max<int>(p.b_lists, static_cast<int>(p.b_bits.lists));
  const int64_t chunks = int64_t{p.depth} * p.columns * static_cast<int64_t>(sizeof(T)) / 16;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(CeilDiv(chunks, kThreads), 2048));
  MaskCopyKernel<T><<<dim3(blocks, 1, lists), kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

template <typename T>
cudaError_t Prepare() {
  const cudaError_t status = PrepareKernel(&StripPackKernel<T>, 0);
  return status == cudaSuccess ? PrepareKernel(&MaskCopyKernel<T>, 0) : status;
}

}  // namespace

cudaError_t LaunchStripPack(const StripParams& p, DType type, cudaStream_t stream) {
  if (type == DType::kF32) return Launch<float>(p, stream);
  if (type == DType::kBF16) return Launch<__nv_bfloat16>(p, stream);
  return Launch<__half>(p, stream);
}

cudaError_t PrepareStripPack() {
  cudaError_t status = Prepare<float>();
  if (status == cudaSuccess) status = Prepare<__nv_bfloat16>();
  return status == cudaSuccess ? Prepare<__half>() : status;
}

}  // namespace jaxsparse
