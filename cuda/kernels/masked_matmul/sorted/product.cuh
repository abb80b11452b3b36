// Tiles of 128 rows x 256 columns of a masked product whose columns of `a` were sorted: the ring
// that feeds one, what a warp loads, and what a warpgroup multiplies.
#pragma once

#include "cuda/core/bulk_load.cuh"
#include "cuda/core/wgmma/fragments.cuh"
#include "cuda/kernels/masked_matmul/panels.cuh"
#include "cuda/tile/load/stack.cuh"
#include "cuda/tile/strip/fragments.cuh"

namespace jaxsparse {

// A stage's rows of `b` come one by one, 256 columns each, as blocks of 128 bytes with the 128-byte
// swizzle, which goes by the address. They lie a little apart, so that what is read from
// neighbouring rows together comes from different banks.
template <typename T>
struct SortedShape {
  static constexpr int kBytes = DTypeTraits<T>::kBytes;
  static constexpr int kSlab = kSlabBytes / kBytes, kStep = kSlab / kSlabSteps;
  static constexpr int kBlockColumns = kSlabBytes / kBytes;  // of a block of 128 bytes
  static constexpr int kRowBytes = kPanelColumns * kBytes;
  static constexpr int kTogether = 4 / kBytes;  // rows without a gap
  static constexpr int kStepBytes = kStep * kRowBytes + kStep / kTogether * 128;
  static_assert(kStepBytes % 1024 == 0, "steps are swizzled alike");

  __host__ __device__ static constexpr int RowOffset(int row) {
    return row * kRowBytes + row / kTogether * 128;
  }
  // Where 16 bytes of a row lie, counted from its step; `row` is in the step.
  __device__ static uint32_t ChunkOffset(int row, int block, int chunk) {
    const int line = RowOffset(row) / 128 + block;
    return line * 128 + (chunk ^ (line % 8)) * 16;
  }
};

inline constexpr int kSortedStages = 4;
inline constexpr int kListVisits = 4;  // whose rows of `b` are listed in shared memory
inline constexpr int kSortedRowsBytes = 36 * 1024;
static_assert(kSlabSteps * SortedShape<__nv_bfloat16>::kStepBytes == kSortedRowsBytes &&
                  kSlabSteps * SortedShape<TF32>::kStepBytes == kSortedRowsBytes,
              "a slab's rows are as large in all types");

struct SortedRing {
  uint8_t b[kSortedStages][kSortedRowsBytes];
  uint8_t a[kSortedStages][kPanelPieces * kPieceBytes];    // what is kept, one after the other
  uint8_t out[kPanelGroups][kPieceBytes / 2];              // results on their way out
  alignas(16) int32_t rows[kSlabSteps][kListVisits * 16];  // of `b`, a loading warp's each
  uint64_t full[kSortedStages], empty[kSortedStages];
  TileOrder order;
};

// The pieces that multiply step `step` of a slab.
__device__ __forceinline__ int LivePieces(int live, int step) {
  return (live >> (kPanelPieces * step)) & ((1 << kPanelPieces) - 1);
}

// Which rows of `b` a loading warp copies in four visits: those of one step of each slab. Memory is
// asked for them four visits ahead; then they lie in shared memory, where one lane reads them.
template <typename T>
struct StepRows {
  using Shape = SortedShape<T>;
  static constexpr int kVisits = kListVisits, kEach = kVisits * Shape::kStep / 32;
  int column[kEach];

  // `slabs`: how many the list has room for.
  __device__ static StepRows Read(const int32_t* columns, int slabs, int visit, int step) {
    StepRows rows;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = 32 * i + threadIdx.x % 32, slab = min(visit + at / Shape::kStep, slabs - 1);
      rows.column[i] =
          __ldg(columns + slab * Shape::kSlab + step * Shape::kStep + at % Shape::kStep);
    }
    return rows;
  }

  // Puts them down, as rows of the stack whose matrix begins at row `first`.
  __device__ void Put(int32_t* rows, int first) const {
    __syncwarp();  // those before are read
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      rows[32 * i + threadIdx.x % 32] = first + (column[i] & kColumnMask);
    }
    __syncwarp();
  }
};

// One lane: copies the blocks from `block` on of the rows of a step.
template <typename T>
__device__ __forceinline__ void LoadStep(uint32_t shared, const CUtensorMap* b, const int32_t* rows,
                                         int block, uint32_t full) {
  using Shape = SortedShape<T>;
  constexpr uint64_t kNormal = 0x1000000000000000ull;
#pragma unroll
  for (int i = 0; i < Shape::kStep; i += 4) {
    const int4 four = *reinterpret_cast<const int4*>(rows + i);
    ptx::LoadStackBox(shared + Shape::RowOffset(i), b, 0, block, four.x, full, kNormal);
    ptx::LoadStackBox(shared + Shape::RowOffset(i + 1), b, 0, block, four.y, full, kNormal);
    ptx::LoadStackBox(shared + Shape::RowOffset(i + 2), b, 0, block, four.z, full, kNormal);
    ptx::LoadStackBox(shared + Shape::RowOffset(i + 3), b, 0, block, four.w, full, kNormal);
  }
}

// Fragments of 64 columns of a slab of `b`, the `group`-th, as StripFragments has them.
template <typename T>
__device__ __forceinline__ void ReadSortedFragments(uint32_t (&fragment)[kSlabSteps][4],
                                                    uint32_t slab, int group) {
  using Shape = SortedShape<T>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  if constexpr (Shape::kBytes == 2) {
    const uint32_t at =
        slab + Shape::ChunkOffset(lane / 16 * 8 + lane % 8, group, 2 * warp + lane / 8 % 2);
#pragma unroll
    for (int q = 0; q < kSlabSteps; ++q) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(fragment[q][0]), "=r"(fragment[q][1]), "=r"(fragment[q][2]),
                     "=r"(fragment[q][3])
                   : "r"(at + q * Shape::kStepBytes));
    }
  } else {
    const int chunk = StripFragments<TF32>::Chunk(warp, lane / 4), block = 2 * group + warp / 2;
#pragma unroll
    for (int far = 0; far < 2; ++far) {
      const uint32_t at =
          slab + Shape::ChunkOffset(4 * far + lane % 4, block, chunk) + lane / 4 % 2 * 8;
#pragma unroll
      for (int q = 0; q < kSlabSteps; ++q) {
        float v[2];
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                     : "=f"(v[0]), "=f"(v[1])
                     : "r"(at + q * Shape::kStepBytes));
        fragment[q][2 * far] = ptx::RoundToTF32(v[0]);
        fragment[q][2 * far + 1] = ptx::RoundToTF32(v[1]);
      }
    }
  }
}

// Descriptor of a packed block: 8 rows by 16 bytes side by side, the other half of K after them.
__device__ __forceinline__ uint64_t BlockDescriptor(uint32_t shared) {
  constexpr uint32_t kNextHalf = 128 >> 4, kNextRows = 256 >> 4;
  uint64_t v;
  asm("mov.b64 %0, {%1, %2};"
      : "=l"(v)
      : "r"((shared & 0x3FFFF) >> 4 | kNextHalf << 16), "r"(kNextRows));
  return v;
}

// One warpgroup's sums: four pieces of 32 rows by 64 columns.
template <typename T>
class SortedMma {
 public:
  __device__ void Clear() {
#pragma unroll
    for (int j = 0; j < kPanelPieces; ++j) {
#pragma unroll
      for (int i = 0; i < 16; ++i) acc_[j][i] = 0.0f;
    }
  }

  // Multiplies the live steps of each piece. Returns when it is done: other warpgroups keep the
  // tensor cores busy.
  __device__ void Multiply(uint32_t b, int group, uint32_t blocks, int live) {
    uint32_t fragment[kSlabSteps][4];
    ReadSortedFragments<T>(fragment, b, group);
    Touch();
#pragma unroll
    for (int q = 0; q < kSlabSteps; ++q) {
#pragma unroll
      for (int j = 0; j < kPanelPieces; ++j) {
        if (((live >> (q * kPanelPieces + j)) & 1) == 0) continue;
        ptx::MmaFence();
        ptx::MmaFragment<T>(acc_[j], fragment[q], BlockDescriptor(blocks));
        blocks += kBlockBytes;
      }
    }
    ptx::MmaFence();  // the branches meet here: ptxas puts it in where it is left out
    ptx::MmaCommit();
    ptx::MmaWait<0>();
    Touch();
  }

  __device__ const float (&sums(int j) const)[16] { return acc_[j]; }

 private:
  __device__ void Touch() {
#pragma unroll
    for (int j = 0; j < kPanelPieces; ++j) ptx::MmaTouch(acc_[j]);
  }

  float acc_[kPanelPieces][16];
};

}  // namespace jaxsparse
