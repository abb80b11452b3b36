// Data-driven rows: y[m, n] = x[m, k] @ w[k, n], w as rows of (16-bit offset, value) entries.
//
// Floor: every product of a kept weight reads one element of x from shared memory: 128 bytes a
// cycle an SM are 32 products, a quarter of the FMA rate; on 132 SMs at 1.755 GHz 7.4e12 products a
// second. A tile of 32 * kRows rows lies transposed, input by input, so that a lane loads its kRows
// neighbouring rows at once. It is filled kChunk inputs at a time by 16-byte loads (8 pieces of 4
// rows a warp) and scattered word by word, pieces of 16 bytes swizzled so that neither side has
// bank conflicts. Blocks of one SM fill and multiply in turns. The input after the last is zero and
// stands for padding. A warp owns kOutputs outputs (rows of w, dealt out by size) and keeps their
// sums in registers over all chunks; it reads its entries, four at a time, as one stream in the
// order of their use. Sums leave through shared memory, so that stores are runs of outputs.
//
// Predicted 16 cycles a quad and SM with four rows a lane. Measured before the last rewrite of the
// prefetch: 0.6x to 1.3x a dense product in float32 at 90 %, which is an estimated 15 cycles a quad
// and 54 a run (one output's entries of one chunk, 3 quads at 90 % sparsity).
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/core/element.cuh"
#include "cuda/kernels/pruned_matmul/rows/launch.h"
#include "cuda/kernels/pruned_matmul/rows/source.cuh"
#include "cuda/tile/pruned_args.h"

namespace jaxsparse {

// What the launcher adds to the arguments.
struct RowsLayout {
  int32_t chunks;  // of kChunk inputs
  int32_t slabs;   // of outputs; a block serves one
  bool wide;       // four neighbouring inputs of a row are one aligned piece
};

template <typename T, int kRowsPerLane, int kChunkInputs, int kOutputsPerWarp, bool kIsImage>
struct RowsConfig {
  using Element = T;
  using Source = std::conditional_t<kIsImage, ImageSource<T>, MatrixSource<T>>;
  static constexpr int kRows = kRowsPerLane;
  static constexpr int kTile = 32 * kRows;
  static constexpr int kChunk = kChunkInputs;
  static constexpr int kOutputs = kOutputsPerWarp;
  static constexpr int kPitch = kTile * 4;        // bytes of an input of the tile
  static constexpr int kPieces = kChunk / 4 + 1;  // of four inputs; the last is zero
  static constexpr int kTileBytes = kPieces * 4 * kPitch;
  static constexpr int kTableBytes = kTile * static_cast<int>(sizeof(typename Source::Row));
  static constexpr uint32_t kMask = (kTileBytes - 1) & ~15;  // no offset leaves the tile
  static_assert((kTileBytes & (kTileBytes - 1)) == 0, "the mask of offsets wants a power of two");
  static_assert(kTileBytes <= 65536, "offsets of entries are 16 bits");
  static_assert(kRows == 1 || kRows == 2 || kRows == 4, "a lane loads 4, 8 or 16 bytes");
  static_assert(kChunk % 4 == 0 && kPieces % 8 == 0, "a warp fills eight pieces at a time");
  static_assert(kOutputs % 4 == 0, "counts are read four at a time");
};

// Fills tiles of x, transposed: a warp loads 8 pieces (of four inputs) of 4 rows at a time.
template <class Config>
class TileLoad {
 public:
  using T = typename Config::Element;
  using Source = typename Config::Source;
  using Row = typename Source::Row;
  static constexpr int kGroups = Config::kPieces / 8;  // warps are a multiple: each has one of them

  // The table of rows in shared memory is for everyone after the next barrier.
  __device__ TileLoad(const PrunedArgs& args, uint32_t tile, Row* table, int64_t first_row)
      : source_(args.x, args.m, args.k, args.geometry), tile_(tile), table_(table) {
    for (int row = threadIdx.x; row < Config::kTile; row += blockDim.x) {
      table_[row] = source_.RowAt(first_row + row);
    }
  }

  template <bool kWide>
  __device__ void Fill(int chunk) const {
    constexpr int kColumns = kWide ? 1 : 4, kAtOnce = kWide ? 4 : 2;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int piece = warp % kGroups * 8 + lane % 8;
    const bool inside = piece < Config::kPieces - 1;
    typename Source::Column columns[kColumns];
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      columns[i] = source_.ColumnAt(inside ? chunk * Config::kChunk + piece * 4 + i : INT32_MAX);
    }
    const uint32_t to = tile_ + piece * 4 * Config::kPitch;
    const int step = warps / kGroups * 4;
    for (int first = warp / kGroups * 4 + lane / 8; first < Config::kTile;
         first += step * kAtOnce) {
      float x[kAtOnce][4];
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        const int row = first + r * step;
        if (row < Config::kTile) LoadPiece(table_[row], columns, x[r]);
      }
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        const int row = first + r * step;
        if (row < Config::kTile) StorePiece(to + ((row * 4) ^ ((piece & 7) << 4)), x[r]);
      }
    }
  }

 private:
  template <int kColumns>
  __device__ __forceinline__ void LoadPiece(const Row& row,
                                            const typename Source::Column (&columns)[kColumns],
                                            float (&x)[4]) const {
    if constexpr (kColumns == 1) {
      const T* from = source_.At(row, columns[0]);
#pragma unroll
      for (float& v : x) v = 0.0f;
      if (from != nullptr) simt::LoadFloats<4>(from, x);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const T* from = source_.At(row, columns[i]);
        x[i] = from == nullptr ? 0.0f : simt::ToFloat(*from);
      }
    }
  }

  __device__ __forceinline__ void StorePiece(uint32_t to, const float (&x)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(to + i * Config::kPitch), "f"(x[i]) : "memory");
    }
  }

  Source source_;
  uint32_t tile_;
  Row* table_;
};

// Four entries.
struct EntryQuad {
  float4 value;
  uint2 offset;  // byte offsets into the tile
};

// The entries of a warp, read four at a time in the order of their use, two quads ahead.
class EntryStream {
 public:
  __device__ EntryStream(const PrunedArgs& args, int32_t first)
      : values_(static_cast<const float4*>(args.values)),
        offsets_(static_cast<const uint2*>(args.indices)),
        at_(static_cast<uint32_t>(max(first, 0))),
        last_(static_cast<uint32_t>(args.entries / 4 - 1)) {
    next_ = Load();
    after_ = Load();
  }

  __device__ __forceinline__ EntryQuad Next() {
    const EntryQuad quad = next_;
    next_ = after_;
    after_ = Load();
    return quad;
  }

 private:
  __device__ __forceinline__ EntryQuad Load() {
    const uint32_t i = min(at_++, last_);
    return {__ldg(values_ + i), __ldg(offsets_ + i)};
  }

  const float4* values_;
  const uint2* offsets_;
  uint32_t at_, last_;
  EntryQuad next_, after_;
};

// The lane's rows of one input.
template <int kRows>
__device__ __forceinline__ void LoadRows(uint32_t address, float (&x)[kRows]) {
  if constexpr (kRows == 4) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
                 : "r"(address));
  } else if constexpr (kRows == 2) {
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x[0]), "=f"(x[1]) : "r"(address));
  } else {
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x[0]) : "r"(address));
  }
}

// Adds a chunk's products to the sums of one output: its entries times the lane's rows.
template <class Config>
__device__ __forceinline__ void MultiplyRow(EntryStream& entries, int quads, uint32_t tile,
                                            uint32_t lane, float (&sums)[Config::kRows]) {
  constexpr uint32_t kBoth = Config::kMask * 0x10001u;
#pragma unroll 1
  for (int i = 0; i < quads; ++i) {
    const EntryQuad quad = entries.Next();
    const uint32_t low = quad.offset.x & kBoth, high = quad.offset.y & kBoth;
    const float value[4] = {quad.value.x, quad.value.y, quad.value.z, quad.value.w};
    const uint32_t at[4] = {(low & 0xffff) ^ lane, (low >> 16) ^ lane, (high & 0xffff) ^ lane,
                            (high >> 16) ^ lane};
    float x[4][Config::kRows];
#pragma unroll
    for (int e = 0; e < 4; ++e) LoadRows<Config::kRows>(tile + at[e], x[e]);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int t = 0; t < Config::kRows; ++t) sums[t] = fmaf(x[e][t], value[e], sums[t]);
    }
  }
}

// Stores the sums of 32 rows of the tile: through shared memory, then runs of outputs.
template <class Config>
class SlabStore {
 public:
  __device__ SlabStore(const PrunedArgs& args, float* staging, int slab)
      : args_(args),
        staging_(staging),
        width_(blockDim.x / 32 * Config::kOutputs),
        first_(static_cast<int64_t>(slab) * width_) {}

  // Rows 32 * part to 32 * part + 31, which the lanes of one part of the warps hold.
  __device__ void Store(const float (&sums)[Config::kOutputs][Config::kRows], int part,
                        int64_t first_row) const {
    constexpr int kHolders = 32 / Config::kRows;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    __syncthreads();
    if (lane / kHolders == part) {
#pragma unroll
      for (int j = 0; j < Config::kOutputs; ++j) {
        const int64_t output = __ldg(args_.rows + first_ + warp * Config::kOutputs + j);
        const int64_t column = output - first_;
        if (column < 0 || column >= width_) continue;
#pragma unroll
        for (int t = 0; t < Config::kRows; ++t) {
          staging_[(lane % kHolders * Config::kRows + t) * (width_ + 1) + column] = sums[j][t];
        }
      }
    }
    __syncthreads();
    for (int row = warp; row < 32 && first_row + row < args_.m; row += warps) {
      const int64_t to = (first_row + row) * args_.n + first_;
      for (int column = lane; column < width_ && first_ + column < args_.n; column += 32) {
        const float bias = args_.bias ? __ldg(args_.bias + first_ + column) : 0.0f;
        const float sum[1] = {
            simt::Activate(args_.activation, staging_[row * (width_ + 1) + column] + bias)};
        simt::StoreResult<1, typename Config::Element>(args_.out, args_.out_type == DType::kF32,
                                                       to + column, sum);
      }
    }
  }

 private:
  const PrunedArgs& args_;
  float* staging_;
  int width_;
  int64_t first_;
};

// The value as the compiler cannot derive it again: left alone, it does so for every run.
__device__ __forceinline__ uint32_t Opaque(uint32_t value) {
  asm volatile("mov.u32 %0, %0;" : "+r"(value));
  return value;
}

// Quads of a warp's outputs in one chunk, a byte an output.
template <int kOutputs>
struct RunCounts {
  uint32_t four[kOutputs / 4];

  __device__ __forceinline__ int Of(int j) const { return four[j / 4] >> j % 4 * 8 & 0xff; }
};

template <class Config>
__global__ void __launch_bounds__(kRowsMostWarps * 32, 1)
    PrunedRows(const __grid_constant__ PrunedArgs args, const RowsLayout layout) {
  extern __shared__ float4 memory[];
  using Counts = RunCounts<Config::kOutputs>;
  char* const table = reinterpret_cast<char*>(memory) + Config::kTileBytes;
  const uint32_t tile = Opaque(static_cast<uint32_t>(__cvta_generic_to_shared(memory)));
  const uint32_t lane = Opaque(threadIdx.x % 32 * (Config::kRows * 4));
  const int slab = blockIdx.x % layout.slabs, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x / layout.slabs) * Config::kTile;
  const TileLoad<Config> load(args, tile, reinterpret_cast<typename Config::Source::Row*>(table),
                              first_row);
  EntryStream entries(args, __ldg(args.starts + slab * warps + warp));
  const Counts* counts = reinterpret_cast<const Counts*>(args.extra) +
                         static_cast<int64_t>(slab) * layout.chunks * warps + warp;
  float sums[Config::kOutputs][Config::kRows] = {};
  for (int chunk = 0; chunk < layout.chunks; ++chunk, counts += warps) {
    __syncthreads();
    const Counts runs = *counts;
    if (layout.wide) {
      load.template Fill<true>(chunk);
    } else {
      load.template Fill<false>(chunk);
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < Config::kOutputs; ++j) {
      MultiplyRow<Config>(entries, runs.Of(j), tile, lane, sums[j]);
    }
  }
  const SlabStore<Config> store(args, reinterpret_cast<float*>(memory), slab);
#pragma unroll
  for (int part = 0; part < Config::kRows; ++part) {
    store.Store(sums, part, first_row + 32 * part);
  }
}

}  // namespace jaxsparse
