// WeightLoad: TMA fills B tiles, 128 bytes wide blocks of 64 output channels. In a cluster each CTA
// loads its share of the blocks and multicasts them to all, so that L2 serves the weights once per
// cluster. A tile may end within a block: the rest of that block is loaded and not multiplied.
#pragma once

#include "cuda/core/async_copy.cuh"
#include "cuda/core/dtype.cuh"
#include "cuda/core/mbarrier.cuh"

namespace jaxsparse {

inline constexpr int kBlockColumns = 64;
inline constexpr int kBlockBytes = kBlockColumns * 128;

template <typename T, int TileN, int Cluster>
class WeightLoad {
 public:
  static constexpr int kTileBlocks = (TileN + kBlockColumns - 1) / kBlockColumns;
  static constexpr int kBytes = kTileBlocks * kBlockBytes;

  __device__ WeightLoad(const CUtensorMap* map, int rank) : map_(map), rank_(rank) {}

  // One lane of each of `Warps` warps: this warp's boxes of the K step that starts at `k` and the N
  // tile that starts at `column`, into the B tile at `shared`.
  template <int Warps>
  __device__ void Load(uint32_t shared, int column, int k, uint32_t barrier, int warp) const {
#pragma unroll
    for (int i = 0; i < (kBlocks + Warps - 1) / Warps; ++i) {
      const int block = rank_ * kBlocks + i * Warps + warp;
      if (kBlocks % Warps != 0 && i * Warps + warp >= kBlocks) continue;
      const int n = column + block * kBlockColumns;
      const uint32_t target = shared + block * kBlockBytes;
      // 16-bit weights stay [K, O]; 32-bit ones were transposed to [O, K].
      const int inner = DTypeTraits<T>::kTransposableB ? n : k;
      const int outer = DTypeTraits<T>::kTransposableB ? k : n;
      if constexpr (Cluster == 1) {
        ptx::LoadBox(target, map_, inner, outer, barrier);
      } else {
        ptx::LoadBoxMulticast(target, map_, inner, outer, barrier, (1 << Cluster) - 1);
      }
    }
  }

 private:
  static constexpr int kBlocks = kTileBlocks / Cluster;
  static_assert(kTileBlocks % Cluster == 0,
                "every CTA of a cluster must load as many blocks of 64 output channels");

  const CUtensorMap* map_;
  int rank_;
};

}  // namespace jaxsparse
