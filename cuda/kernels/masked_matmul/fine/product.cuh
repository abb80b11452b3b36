// Tiles of 256 rows x 128 columns of a product with a fine mask: the ring that feeds one, where a
// warp's records come from, and how it multiplies one.
#pragma once

#include "cuda/core/async_copy.cuh"
#include "cuda/core/matrix_copy.cuh"
#include "cuda/core/mbarrier.cuh"
#include "cuda/core/mma_sync.cuh"
#include "cuda/core/wgmma/tf32.cuh"
#include "cuda/kernels/masked_matmul/fine/params.h"

namespace jaxsparse {

inline constexpr int kFineStages = 3;
inline constexpr int kFineWarps = kTileGroups;  // that multiply, a group each
inline constexpr int kAhead = 3;                // records of a warp on their way
inline constexpr int kFineStageBytes = kFineSlabBytes * kFineColumns;
inline constexpr int kOutBytes = 8 * 64;  // results of a warp on their way out: 8 rows, 32 columns
inline constexpr int kColumnSteps = kFineColumns / 16;

struct FineRing {
  uint8_t b[kFineStages][kFineStageBytes];  // boxes of 128 bytes of a row, all rows of the slab
  uint8_t out[kFineWarps][kOutBytes];
  alignas(16) uint8_t records[kFineWarps][kAhead][kRecordBytes];
  uint64_t full[kFineStages], empty[kFineStages];
};

// Tiles in their order: those of the same columns follow each other and share what they load.
struct FineTile {
  int list, row_tile, column;

  __device__ FineTile(const FineParams& p, int item)
      : list(item / (p.row_tiles * p.column_tiles)),
        row_tile(item % p.row_tiles),
        column(item / p.row_tiles % p.column_tiles * kFineColumns) {}
};

__device__ __forceinline__ int FineItems(const FineParams& p) {
  return p.lists * p.row_tiles * p.column_tiles;
}

// Steps of a group in a slab.
__device__ __forceinline__ int StepsOf(const FineParams& p, const FineTile& tile, int slab,
                                       int group) {
  const int64_t at = (p.pack_lists == 1 ? 0 : int64_t{tile.list}) * p.row_tiles + tile.row_tile;
  // Not by __ldg: packing writes it while this kernel is resident already.
  return p.steps[(at * p.slabs + slab) * kTileGroups + group];
}

// Walks the records of a warp, which has a group of each of its tiles, slab by slab.
class FineRecords {
 public:
  __device__ FineRecords(const FineParams& p, int warp)
      : p_(p), warp_(warp), item_(blockIdx.x), items_(FineItems(p)) {
    BeginTile();
  }

  // The next one, or nullptr.
  __device__ const char* Next() {
    while (item_ < items_) {
      if (step_ < steps_) {
        return group_ + int64_t{slab_ * kFineSteps + step_++} * kRecordBytes;
      }
      step_ = 0;
      if (++slab_ < p_.slabs) {
        steps_ = later_;
        later_ = slab_ + 1 < p_.slabs ? StepsOf(p_, FineTile(p_, item_), slab_ + 1, warp_) : 0;
      } else {
        item_ += gridDim.x;
        BeginTile();
      }
    }
    return nullptr;
  }

 private:
  __device__ void BeginTile() {
    slab_ = 0;
    if (item_ >= items_) return;
    const FineTile tile(p_, item_);
    const int64_t at = (p_.pack_lists == 1 ? 0 : int64_t{tile.list}) * p_.row_tiles + tile.row_tile;
    group_ = p_.records + (at * kTileGroups + warp_) * p_.slabs * kFineSteps * kRecordBytes;
    steps_ = StepsOf(p_, tile, 0, warp_);
    later_ = p_.slabs > 1 ? StepsOf(p_, tile, 1, warp_) : 0;
  }

  const FineParams& p_;
  const int warp_;
  int item_;
  const int items_;
  int slab_ = 0, step_ = 0, steps_ = 0, later_ = 0;
  const char* group_ = nullptr;
};

// A warp's sums: 16 columns of `b` by 8 rows of `a`, 8 times for each half of the group's rows.
using FineSums = float[2][kColumnSteps][4];

// Of two rows of 16 bits, those that `fills` does not name: bit 0 the low one, bit 1 the high one.
__device__ __forceinline__ uint32_t Kept(uint32_t fills) {
  return (fills & 1 ? 0 : 0xffffu) | (fills & 2 ? 0 : 0xffff0000u);
}

// Adds a step of a group. All lanes of a warp call this. What fills a half of the list up repeats
// its first row, or that of the other half. It counts as zeros: a kept infinity stays one.
template <typename T>
__device__ __forceinline__ void MultiplyStep(FineSums& sums, uint32_t slab, const uint8_t* record) {
  const int lane = threadIdx.x % 32;
  const uint4 entries = *reinterpret_cast<const uint4*>(record + 16 * lane);
  const uint8_t* list = record + kFragmentBytes;
  if constexpr (DTypeTraits<T>::kBytes == 2) {
    // Lane l names row l % 8 of a block of 8 x 8: 8 of the columns of `a`, 8 columns of `b`.
    const uint32_t row = list[lane / 16 * 8 + lane % 8], half = lane / 8 % 2;
    const uint32_t at = slab + row * 128 + (half ^ row % 8) * 16;
    const uint32_t fills = __ballot_sync(~0u, (lane % 8 != 0 && row == list[lane / 16 * 8]) ||
                                                  (lane >= 16 && list[8] == list[0])) >>
                           (lane % 4 * 2);
    const uint32_t near = Kept(fills), far = Kept(fills >> 16);
#pragma unroll
    for (int i = 0; i < kColumnSteps; ++i) {
      uint32_t fragment[4];
      ptx::LoadMatricesTransposed((at ^ i % 4 << 5) + i / 4 * (kFineStageBytes / 2), fragment);
      fragment[0] &= near, fragment[1] &= near, fragment[2] &= far, fragment[3] &= far;
      ptx::MmaSync<T>(sums[0][i], fragment, entries.x, entries.y);
      ptx::MmaSync<T>(sums[1][i], fragment, entries.z, entries.w);
    }
  } else {
    const uint32_t near = list[lane % 4], far = list[lane % 4 + 4], column = lane / 4;
    const uint32_t first = slab + near * 128 + (column / 4 ^ near % 8) * 16 + column % 4 * 4;
    const uint32_t second = slab + far * 128 + (column / 4 ^ far % 8) * 16 + column % 4 * 4;
    const bool near_fills = lane % 4 != 0 && near == list[0];
    const bool far_fills = (lane % 4 != 0 && far == list[4]) || list[4] == list[0];
    const auto load = [](uint32_t at, bool fills) {
      float v;
      asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at));
      return fills ? 0u : ptx::RoundToTF32(v);
    };
#pragma unroll
    for (int i = 0; i < kColumnSteps; ++i) {
      const uint32_t box = i / 2 * (kFineStageBytes / 4), flip = i % 2 << 6;
      const uint32_t fragment[4] = {
          load((first ^ flip) + box, near_fills), load((first ^ flip ^ 32) + box, near_fills),
          load((second ^ flip) + box, far_fills), load((second ^ flip ^ 32) + box, far_fills)};
      ptx::MmaSync<T>(sums[0][i], fragment, entries.x, entries.y);
      ptx::MmaSync<T>(sums[1][i], fragment, entries.z, entries.w);
    }
  }
}

// Where 8 rows of results go.
struct FineTarget {
  int list, row, column;
};

// Stores float32 results. A lane has the columns lane / 4 and 8 further, and two rows.
__device__ __forceinline__ void StoreWide(const FineParams& p, const FineTarget& to,
                                          const float (&sums)[kColumnSteps][4]) {
  const int lane = threadIdx.x % 32;
  float* out = static_cast<float*>(p.out) + (int64_t{to.list} * p.rows + to.row) * p.columns;
#pragma unroll
  for (int i = 0; i < kColumnSteps; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int row = lane % 4 * 2 + j % 2, column = to.column + 16 * i + j / 2 * 8 + lane / 4;
      if (to.row + row < p.rows && column < p.columns) {
        out[int64_t{row} * p.columns + column] = sums[i][j];
      }
    }
  }
}

// Stores 16-bit results, 32 columns at a time: turned on their way through shared memory.
template <typename T>
__device__ __forceinline__ void StoreNarrow(const FineParams& p, const FineTarget& to,
                                            const float (&sums)[kColumnSteps][4], uint32_t stage) {
  const int lane = threadIdx.x % 32;
  auto* out = static_cast<uint16_t*>(p.out) + (int64_t{to.list} * p.rows + to.row) * p.columns;
#pragma unroll
  for (int i = 0; i < kColumnSteps; i += 2) {
    const auto &low = sums[i], &high = sums[i + 1];
    const uint32_t v[4] = {
        DTypeTraits<T>::Pack(low[0], low[1]), DTypeTraits<T>::Pack(low[2], low[3]),
        DTypeTraits<T>::Pack(high[0], high[1]), DTypeTraits<T>::Pack(high[2], high[3])};
    const auto place = [stage](int row, int chunk) {
      return stage + row * 64 + (chunk ^ row / 2 % 4) * 16;
    };
    ptx::StoreMatricesTransposed(place(lane % 8, lane / 8), v);
    __syncwarp();
    const int row = lane / 4, column = to.column + 16 * i + lane % 4 * 8;
    uint32_t turned[4];
    ptx::LoadShared16(place(row, lane % 4), turned);
    if (to.row + row < p.rows && column < p.columns) {
      *reinterpret_cast<uint4*>(out + int64_t{row} * p.columns + column) =
          make_uint4(turned[0], turned[1], turned[2], turned[3]);
    }
    __syncwarp();  // before the next columns take the place of these
  }
}

}  // namespace jaxsparse
