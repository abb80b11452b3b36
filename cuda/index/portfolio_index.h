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
  int32_t* ids;    // [lists, capacity]
  int32_t* count;  // [lists]
  bool* overflow;  // [lists]
};

// The pixels that some active output pixel of a convolution reads: of a mask of the output, packed.
// Input pixel n of an axis is read by output pixel o through tap k where
// n * lhs_dilation + pad = o * stride + k * dilation.
struct ReachSource {
  const uint32_t* words;  // [lists, images, height, ceil(width/32)], of the output; absent: bytes
  const uint32_t* keep;   // of the input's shape, or absent: the other pixels are left out
  int32_t height, width;  // of the output
  struct Axis {
    int32_t taps, stride, pad, dilation, lhs_dilation;
  } rows, columns;
};

// `lists` independent masks uint8[images, height, width]: given as bytes, or as what they reach.
struct PortfolioArgs {
  const uint8_t* mask;
  ReachSource reach;
  int64_t lists, images, height, width;
  int32_t sizes, variants;
  PortfolioList list[kMaxPortfolio];  // [sizes]
  const float* costs;                 // [lists, variants, 5]; may be absent with `choice`
  uint32_t* words;                    // [lists, images, height, ceil(width/32)]
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
