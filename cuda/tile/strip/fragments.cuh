// Fragments of a slab of `b` as wgmma's left operand, transposed while they are read: 64 columns of
// `b` are its rows. A slab is 128 bytes of K deep and has the 128-byte swizzle.
#pragma once

#include "cuda/core/dtype.cuh"
#include "cuda/core/wgmma/tf32.cuh"

namespace jaxsparse {

// fragment[q] is the q-th of the four steps of 32 bytes of K. Row r of the product's 64 is column
// Column(r) of the slab.
template <typename T>
struct StripFragments {
  __device__ static void Read(uint32_t (&fragment)[4][4], uint32_t slab) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    const int row = lane / 16 * 8 + lane % 8, chunk = 2 * warp + lane / 8 % 2;
    const uint32_t at = slab + row * 128 + ((chunk ^ (lane % 8)) * 16);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(fragment[q][0]), "=r"(fragment[q][1]), "=r"(fragment[q][2]),
                     "=r"(fragment[q][3])
                   : "r"(at + q * 16 * 128));
    }
  }
};

// Two boxes of 32 columns. A lane's two columns lie side by side, and lanes are spread over the
// chunks of a row so that 16 of them hit all banks.
template <>
struct StripFragments<TF32> {
  static constexpr int kBoxBytes = 32 * 128;

  // The first of this lane's two neighbouring columns, which are rows lane/4 and lane/4 + 8 of its
  // warp's 16.
  __device__ static int Column() {
    const int warp = threadIdx.x % 128 / 32, r = threadIdx.x % 32 / 4;
    return warp / 2 * 32 + Chunk(warp, r) * 4 + r % 2 * 2;
  }

  __device__ static void Read(uint32_t (&fragment)[4][4], uint32_t slab) {
    const int warp = threadIdx.x % 128 / 32, r = threadIdx.x % 32 / 4, k = threadIdx.x % 4;
    const uint32_t box = slab + warp / 2 * kBoxBytes + r % 2 * 8;
    const int chunk = Chunk(warp, r);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
#pragma unroll
      for (int far = 0; far < 2; ++far) {
        float v[2];
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                     : "=f"(v[0]), "=f"(v[1])
                     : "r"(box + (8 * q + 4 * far + k) * 128 + ((chunk ^ (4 * far + k)) * 16)));
        fragment[q][2 * far] = ptx::RoundToTF32(v[0]);
        fragment[q][2 * far + 1] = ptx::RoundToTF32(v[1]);
      }
    }
  }

  // The 16-byte chunk of a row in which column-pair `r` of a warp lies.
  __device__ static int Chunk(int warp, int r) { return warp % 2 * 2 + r / 4 + r / 2 % 2 * 4; }
};

}  // namespace jaxsparse
