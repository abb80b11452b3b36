// Blocks that build the lists of one mask together: each publishes its sums, all wait once, each
// reads what the others published. The wait is the hardware's (a cluster's barrier, a cooperative
// launch's), so no counter in memory has to be zero beforehand.
#pragma once

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/index/strips.h"

namespace jaxsparse {

// One block has nothing to exchange.
class SoloTeam {
 public:
  static constexpr int kMaxBlocks = 1;
  __device__ explicit SoloTeam(const StripArgs& /*args*/) {}
  __device__ int64_t first_mask() const { return blockIdx.x; }
  __device__ int64_t mask_stride() const { return gridDim.x; }
  __device__ int32_t rank() const { return 0; }
  __device__ void Publish(int64_t /*turn*/, int /*t*/, int32_t /*sum*/) const {}
  __device__ void Wait(bool /*joined*/) const {}
  __device__ int32_t Read(int64_t /*turn*/, int /*t*/, int32_t /*block*/) const { return 0; }
  __device__ void Next() const { __syncthreads(); }
};

// A cluster a mask: a block writes its sums into the shared memory of every block.
class ClusterTeam {
 public:
  static constexpr int kMaxBlocks = kLargestCluster;
  // Nothing was written yet that this arrival would have to publish.
  __device__ explicit ClusterTeam(const StripArgs& args) : args_(args) { ArriveEmpty(); }

  __device__ int64_t first_mask() const { return Mask(); }
  __device__ int64_t mask_stride() const { return args_.by_blocks.Quotient(gridDim.x); }
  __device__ int32_t rank() const { return blockIdx.x - Mask() * args_.blocks; }

  // One warp a list.
  __device__ void Publish(int64_t /*turn*/, int t, int32_t sum) const {
    Join();  // every block runs, and has read what it was told of the mask before
    const int lane = threadIdx.x % 32;
    if (lane < args_.blocks) *At(Sums() + t * kLargestCluster + rank(), lane) = sum;
  }
  // Warps that published nothing call with `joined` false.
  __device__ void Wait(bool joined) const {
    if (!joined) Join();
    Arrive();
    Join();
  }
  __device__ int32_t Read(int64_t /*turn*/, int t, int32_t block) const {
    return Sums()[t * kLargestCluster + block];
  }
  __device__ void Next() const {
    __syncthreads();
    Arrive();
  }

 private:
  __device__ int32_t Mask() const { return args_.by_blocks.Quotient(blockIdx.x); }
  __device__ static int32_t* Sums() {
    __shared__ int32_t sums[kMaxPortfolio * kLargestCluster];
    return sums;
  }
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  __device__ static int32_t* At(int32_t* address, int block) {
    return cooperative_groups::this_cluster().map_shared_rank(address, block);
  }
  __device__ static void Arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
  __device__ static void ArriveEmpty() { asm volatile("barrier.cluster.arrive.relaxed;"); }
  __device__ static void Join() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
#else
  __device__ static int32_t* At(int32_t* address, int /*block*/) { return address; }
  __device__ static void Arrive() {}
  __device__ static void ArriveEmpty() {}
  __device__ static void Join() { __syncthreads(); }
#endif

  const StripArgs& args_;
};

// The whole grid, one mask after another; sums are exchanged through memory, in two halves taken in
// turn: a half is written again only after a wait that every reader has passed.
class GridTeam {
 public:
  static constexpr int kMaxBlocks = kMaxTeamBlocks;
  __device__ explicit GridTeam(const StripArgs& args) : scratch_(args.scratch) {}

  __device__ int64_t first_mask() const { return 0; }
  __device__ int64_t mask_stride() const { return 1; }
  __device__ int32_t rank() const { return static_cast<int32_t>(blockIdx.x); }
  __device__ void Publish(int64_t turn, int t, int32_t sum) const {
    if (threadIdx.x % 32 == 0) __stcg(Half(turn) + t * kMaxTeamBlocks + rank(), sum);
  }
  __device__ void Wait(bool /*joined*/) const { cooperative_groups::this_grid().sync(); }
  __device__ int32_t Read(int64_t turn, int t, int32_t block) const {
    return __ldcg(Half(turn) + t * kMaxTeamBlocks + block);
  }
  __device__ void Next() const { __syncthreads(); }

 private:
  __device__ int32_t* Half(int64_t turn) const {
    return scratch_ + (turn & 1) * kMaxPortfolio * kMaxTeamBlocks;
  }

  int32_t* scratch_;
};

}  // namespace jaxsparse
