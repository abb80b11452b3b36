// One warpgroup's 64 x 256 share of a tile of a masked product, in 16 bits and in TF32.
#pragma once

#include "cuda/core/wgmma/tf32.cuh"
#include "cuda/tile/mma/tiles.cuh"
#include "cuda/tile/store/rows.cuh"
#include "cuda/tile/strip/tiles.cuh"

namespace jaxsparse {

// Which of `Groups` groups of `Each` neighbouring outputs of a row are wanted, one bit each; groups
// are `Step` columns apart. A loop, not unrolled: it must not crowd the products out of the
// instruction cache.
template <int Groups, int Each, int Step>
__device__ __forceinline__ uint32_t WantedOutputs(const BlockBits& bits, int list, int row,
                                                  int column) {
  const int64_t line = (bits.lists == 1 ? 0 : list) * bits.rows + row / bits.row_size;
  const uint32_t* words = bits.words + line * bits.row_words;
  const auto size = static_cast<uint32_t>(bits.col_size);
  const auto last = static_cast<uint32_t>(bits.row_words) * 32 - 1;
  uint32_t wanted = 0;
#pragma unroll 1
  for (int i = 0; i < Groups * Each; ++i) {
    const uint32_t block =
        min(static_cast<uint32_t>(column + i / Each * Step + i % Each) / size, last);
    wanted |= ((__ldg(words + block / 32) >> (block % 32)) & 1) << i;
  }
  return wanted;
}

// Rows of `a` times rows of `b` in place: wgmma takes 16-bit operands in either order.
template <typename T>
class StripMma {
 public:
  __device__ void Clear() {
    mma_.Clear();
    started_ = false;
  }

  // Starts one stage.
  __device__ void Multiply(uint32_t a, uint32_t b) {
    mma_.Multiply(a, b);
    started_ = true;
  }

  // Returns when no stage but the last is being multiplied; when none is.
  __device__ void RetireBefore() { mma_.template Retire<1>(); }
  __device__ void Finish() { mma_.template Retire<0>(); }

  // `row` is the share's first one, blocks of columns are those in the slots from `slot` on.
  __device__ void Store(const StripParams& p, const StripTiles& tiles, const StripTile& tile,
                        int row, int slot) {
    const RowStore<T, kColumnBlock> store(p.out, p.columns, p.out_f32);
    const int first = row + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    StoredRows to;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      to.row[h] = first + 8 * h < p.rows ? tile.list * p.rows + first + 8 * h : -1;
      to.counts[h] = started_;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int block = tiles.Block(tile, slot + j);
      if (block < 0) continue;
      float (&acc)[32] = *reinterpret_cast<float (*)[32]>(&mma_.acc[0][32 * j]);
      if (p.out_bits.words != nullptr && started_) {
        DropUnwanted(p, tile.list, first, block * kColumnBlock, acc);
      }
      store.Store(acc, to, block * kColumnBlock);
    }
  }

 private:
  __device__ void DropUnwanted(const StripParams& p, int list, int first, int column,
                               float (&acc)[32]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (first + 8 * h >= p.rows) continue;
      const uint32_t wanted =
          WantedOutputs<8, 2, 8>(p.out_bits, list, first + 8 * h, column + 2 * (threadIdx.x % 4));
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        float& v = acc[i / 2 * 4 + 2 * h + i % 2];
        v = (wanted >> i) & 1 ? v : 0.0f;
      }
    }
  }

  TileMma<T, 1, 256> mma_;
  bool started_ = false;
};

// The transposed product: columns of `b` are the M side and come as fragments in registers, rows of
// `a` are the N side; TF32 wants K contiguous in shared memory, and in `b` it is not.
//
// A lane reads 16 bytes of a row of `b`: four columns, which are rows lane/4 and lane/4 + 8 of two
// blocks of M. Its chunk of the 128 bytes is chosen so that eight lanes hit all banks.
template <>
class StripMma<TF32> {
 public:
  __device__ StripMma()
      : chunk_(threadIdx.x % 8 / 4 * 4 + threadIdx.x % 32 / 8),
        k_(threadIdx.x % 4),
        box_(threadIdx.x % 128 / 32) {}

  __device__ void Clear() { accumulate_ = 0; }

  __device__ void Multiply(uint32_t a, uint32_t b) {
    const uint64_t rows = ptx::TileDescriptor(a, 0);
    float next[2][2][4];
    ReadRows(next, b, 0);
#pragma unroll
    for (int q = 0; q < 4; ++q) {  // 8 of K each
      if (q > 0) Retire<1>();      // the last product but one, which had these fragments
      RoundRows(fragment_[q % 2], next);
      Touch();
      ptx::MmaFence();
#pragma unroll
      for (int block = 0; block < 4; ++block) {
        ptx::MmaTF32(acc_[block], fragment_[q % 2][block], rows + 2 * q, accumulate_);
      }
      ptx::MmaCommit();
      accumulate_ = 1;
      if (q < 3) ReadRows(next, b, q + 1);  // while it multiplies
    }
  }

  __device__ void RetireBefore() { Retire<1>(); }
  __device__ void Finish() { Retire<0>(); }

  __device__ void Store(const StripParams& p, const StripTiles& tiles, const StripTile& tile,
                        int first, int slot) {
    float* out = static_cast<float*>(p.out) + int64_t{tile.list} * p.rows * p.columns;
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      const int box = box_ + 4 * x;
      const int block = tiles.Block(tile, slot + box / 2);
      const int column = block * kColumnBlock + box % 2 * 32 + chunk_ * 4;
      if (block < 0 || column >= p.columns) continue;
      const uint64_t wanted = accumulate_ == 0 ? 0 : Wanted(p, tile.list, first, column);
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int row = Row(first, i), at = i / 2 * 4 + i % 2;
        if (row >= p.rows) continue;
        float v[4] = {acc_[2 * x][at], acc_[2 * x][at + 2], acc_[2 * x + 1][at],
                      acc_[2 * x + 1][at + 2]};
#pragma unroll
        for (int c = 0; c < 4; ++c) v[c] = (wanted >> (4 * i + c)) & 1 ? v[c] : 0.0f;
        __stcs(reinterpret_cast<float4*>(out + int64_t{row} * p.columns + column),
               make_float4(v[0], v[1], v[2], v[3]));
      }
    }
  }

 private:
  static constexpr int kBoxBytes = 32 * kSlabBytes;

  // Row `i` of this lane's 16 rows of the share.
  __device__ int Row(int first, int i) const { return first + i / 2 * 8 + 2 * k_ + i % 2; }

  // One bit for each of the lane's four columns in its rows.
  __device__ uint64_t Wanted(const StripParams& p, int list, int first, int column) const {
    if (p.out_bits.words == nullptr) return ~uint64_t{0};
    uint64_t wanted = 0;
#pragma unroll 1
    for (int i = 0; i < 16 && Row(first, i) < p.rows; ++i) {
      const uint64_t four = WantedOutputs<1, 4, 0>(p.out_bits, list, Row(first, i), column);
      wanted |= four << (4 * i);
    }
    return wanted;
  }

  template <int Pending>
  __device__ void Retire() {
    ptx::MmaWait<Pending>();
    Touch();
  }

  // Keeps the compiler from moving sums across.
  __device__ void Touch() {
#pragma unroll
    for (int block = 0; block < 4; ++block) ptx::MmaTouch(acc_[block]);
  }

  // A warp's columns are those of boxes `box_` and `box_ + 4`: two blocks of M each. rows[x][far]
  // are four columns of box x in row `k_` or, far, `k_ + 4` of the eight.
  __device__ void ReadRows(float (&rows)[2][2][4], uint32_t b, int q) const {
#pragma unroll
    for (int x = 0; x < 2; ++x) {
#pragma unroll
      for (int far = 0; far < 2; ++far) {
        const int k = far * 4 + k_;
        float (&v)[4] = rows[x][far];
        asm volatile(
            "ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
            : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
            : "r"(b + (box_ + 4 * x) * kBoxBytes + (q * 8 + k) * kSlabBytes + ((chunk_ ^ k) * 16)));
      }
    }
  }

  __device__ static void RoundRows(uint32_t (&fragment)[4][4], const float (&rows)[2][2][4]) {
#pragma unroll
    for (int x = 0; x < 2; ++x) {
#pragma unroll
      for (int far = 0; far < 2; ++far) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          fragment[2 * x + i / 2][2 * far + i % 2] = ptx::RoundToTF32(rows[x][far][i]);
        }
      }
    }
  }

  float acc_[4][32];
  uint32_t fragment_[2][4][4];
  int chunk_, k_, box_, accumulate_ = 0;
};

}  // namespace jaxsparse
