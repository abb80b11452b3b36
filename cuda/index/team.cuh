// Blocks that build the lists of one mask together: each publishes its sums, all wait once, each
// reads what the others published. The wait is the hardware's (a cluster's barrier, a cooperative
// launch's), so no counter in memory has to be zero beforehand.
#pragma once

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/index/portfolio_index.h"

namespace jaxsparse {

// A cluster a mask; sums are exchanged through shared memory. One block where there are no
// clusters.
class ClusterTeam {
 public:
  __device__ explicit ClusterTeam(int32_t* /*scratch*/) {}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  __device__ int32_t blocks() const { return static_cast<int32_t>(Group().num_blocks()); }
  __device__ int32_t rank() const { return static_cast<int32_t>(Group().block_rank()); }
  __device__ void Wait() const { Group().sync(); }
  __device__ void Finish() const { Group().sync(); }  // others may still read these sums
  __device__ int32_t Read(int64_t /*turn*/, int size, int32_t block) const {
    return Group().map_shared_rank(Sums(), static_cast<unsigned>(block))[size];
  }
#else
  __device__ int32_t blocks() const { return 1; }
  __device__ int32_t rank() const { return 0; }
  __device__ void Wait() const { __syncthreads(); }
  __device__ void Finish() const { __syncthreads(); }
  __device__ int32_t Read(int64_t /*turn*/, int size, int32_t /*block*/) const {
    return Sums()[size];
  }
#endif
  __device__ void Publish(int64_t /*turn*/, int size, int32_t sum) const { Sums()[size] = sum; }
  __device__ int64_t first_list() const { return blockIdx.x / blocks(); }
  __device__ int64_t list_stride() const { return gridDim.x / blocks(); }

 private:
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  __device__ static cooperative_groups::cluster_group Group() {
    return cooperative_groups::this_cluster();
  }
#endif
  __device__ static int32_t* Sums() {
    __shared__ int32_t sums[kMaxPortfolio];
    return sums;
  }
};

// The whole grid, one mask after another; sums are exchanged through memory, in two halves taken in
// turn: a half is written again only after a wait that every reader has passed.
class GridTeam {
 public:
  __device__ explicit GridTeam(int32_t* scratch) : scratch_(scratch) {}

  __device__ int32_t blocks() const { return static_cast<int32_t>(gridDim.x); }
  __device__ int32_t rank() const { return static_cast<int32_t>(blockIdx.x); }
  __device__ void Wait() const { cooperative_groups::this_grid().sync(); }
  __device__ void Finish() const { __syncthreads(); }
  __device__ void Publish(int64_t turn, int size, int32_t sum) const {
    __stcg(Half(turn) + size * kMaxTeamBlocks + rank(), sum);
  }
  __device__ int32_t Read(int64_t turn, int size, int32_t block) const {
    return __ldcg(Half(turn) + size * kMaxTeamBlocks + block);
  }
  __device__ int64_t first_list() const { return 0; }
  __device__ int64_t list_stride() const { return 1; }

 private:
  __device__ int32_t* Half(int64_t turn) const {
    return scratch_ + (turn & 1) * kMaxPortfolio * kMaxTeamBlocks;
  }

  int32_t* scratch_;
};

}  // namespace jaxsparse
