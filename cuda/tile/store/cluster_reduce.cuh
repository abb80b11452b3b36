// ClusterReduce: the CTAs of a cluster, each with a part of K, add up one compute tile through
// distributed shared memory. Every CTA finishes its share of the rows, adding the parts in rank
// order: the same sum every time, without atomics. All threads of the cluster synchronise between
// Put and Finish and after Finish.
#pragma once

#include "cuda/core/mbarrier.cuh"
#include "cuda/core/warpgroup.cuh"
#include "cuda/tile/store/scatter.cuh"

namespace jaxsparse {

template <int TileM, int TileN, int Parts, int ConsumerThreads>
struct ClusterReduce {
  static constexpr int kPitch = TileN + 8;  // floats; spreads the rows of a fragment over the banks
  static constexpr int kShareRows = TileM / Parts;
  static_assert(TileM % Parts == 0, "split_k must divide tile_m");

  alignas(16) float part[TileM][kPitch];

  // Leaves a 64-row block's accumulators in this CTA's part.
  __device__ void Put(const float (&acc)[TileN / 2], int first_row) {
    const int row = first_row + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    const int column = 2 * (threadIdx.x % 4);
#pragma unroll
    for (int j = 0; j < TileN / 8; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        *reinterpret_cast<float2*>(&part[row + 8 * h][column + 8 * j]) =
            make_float2(acc[4 * j + 2 * h], acc[4 * j + 2 * h + 1]);
      }
    }
  }

  // Adds and stores this CTA's share of the rows; `pixels` are the tile's flat output pixels, or
  // -1.
  template <typename T>
  __device__ void Finish(const ConvParams& p, int rank, int n0, const int32_t* pixels) {
    constexpr int kRowVectors = TileN / 4;
    for (int i = threadIdx.x; i < kShareRows * kRowVectors; i += ConsumerThreads) {
      const int row = rank * kShareRows + i / kRowVectors;
      const int column = i % kRowVectors * 4;
      const uint32_t at = ptx::SharedAddress(&part[row][column]);
      float4 sum = {0, 0, 0, 0};
#pragma unroll
      for (int r = 0; r < Parts; ++r) {
        const float4 v = ptx::LoadRemote(at, r);
        sum = {sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w};
      }
      if (pixels[row] >= 0 && n0 + column < p.out_c) {
        StoreVector<T>(p, pixels[row], n0 + column, sum);
      }
    }
  }
};

}  // namespace jaxsparse
