// The lists of active tiles of byte masks, for several tile sizes at once, in one launch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxsparse {

constexpr int kMaxPortfolio = 8;
constexpr int kMaxTeamBlocks = 256;
constexpr int kLargestCluster = 16;

// One list of every mask: tiles of (1 << th_log2) x (1 << tw_log2) pixels, each at most 32.
struct PortfolioList {
  int32_t th_log2, tw_log2;
  int64_t capacity;
  int32_t* ids;  // [lists, capacity]
};

// `lists` independent masks uint8[images, height, width].
struct PortfolioArgs {
  const uint8_t* mask;
  int64_t lists, images, height, width;
  int32_t sizes, variants;
  PortfolioList list[kMaxPortfolio];  // [sizes]
  const float* costs;                 // [lists, variants, 5]; may be absent with `choice`
  uint32_t* words;                    // [lists, images, height, ceil(width/32)]
  int32_t* count;                     // [lists, sizes]
  bool* overflow;                     // [lists, sizes]
  int32_t* choice;                    // [lists]
  int32_t* scratch;                   // [kPortfolioScratch]
};

// How many blocks of how many threads share a mask, and whether they are one cluster (one block
// alone counts as one) or the whole grid.
struct PortfolioTeam {
  bool cluster;
  int32_t blocks, threads;
};

// Workspace, in integers.
constexpr int64_t kPortfolioScratch = 2 * kMaxPortfolio * kMaxTeamBlocks;

// Raises the kernels' limits on the current device and asks what it can hold; only the first call
// for a device does something.
cudaError_t PreparePortfolio();

// The team that is fastest for a mask of this size on the current device.
cudaError_t PlanPortfolio(const PortfolioArgs& args, PortfolioTeam* team);

// One launch. A single list ascends; several are in strip order.
cudaError_t PortfolioIndex(const PortfolioArgs& args, PortfolioTeam team, cudaStream_t stream);

}  // namespace jaxsparse
