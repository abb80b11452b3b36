// The masked convolution that chooses on the device. Of the tensor-core rows of
// variants/masked_conv.toml one kernel holds all, also those whose CTAs share weights in pairs or
// split K over two or four; three with less code, for plain calls, hold those of at most 64 and 128
// columns, and all; another holds every row of variants/masked_conv_mma.toml. The candidate that
// costs least runs. Candidates whose CTAs work in clusters all do so in clusters of one size.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/kernels/masked_conv/args.h"

namespace jaxsparse {

constexpr int kMaxCandidates = 8, kMaxLists = 4;
constexpr int kEveryTile = 255;  // a candidate's `list`: none, it visits every pixel of the mask

// One way to run the problem: a row of the variant table over one of the lists.
struct ConvCandidate {
  int variant;  // the number of the row
  int list;     // below ConvChoice::lists, or kEveryTile
};

struct ConvChoice {
  int candidates, lists;
  ConvCandidate candidate[kMaxCandidates];
  TileList list[kMaxLists];  // `words` is not read
  const int32_t* choice;     // the candidate to run, on the device; nullptr: the cheapest
  const float* costs;        // [candidates, 5], rows of cuda/index/cost.cuh; without `choice`
};

// Why a launch is not possible, or nullptr when it is. `args.tiles` is not read but for `words`.
const char* MaskedConvDeviceReason(const MaskedConvArgs& args, const ConvChoice& choice);

// Workspace in bytes for candidates of these variants: the transposed weights of float32, the
// padded ones of ragged channels (mma.sync), and a flag per warp and a partial tile per CTA where
// one of them streams K.
int64_t MaskedConvDeviceScratchBytes(const ConvGeometry& geometry, DType in_type,
                                     const int* variants, int count);

// Once per device, before the first launch and outside any capture.
cudaError_t PrepareMaskedConvDevice();

// Writes every active pixel of the tiles of the list that the chosen candidate names and, with
// args.zero_fill, zeros to the others; touches nothing else of `out`. One launch, two where rows of
// both tables are candidates; one more for weights that are rewritten (float32, ragged channels),
// and one more for the zeros of each list that candidates name and that may overflow. No host
// branch on device data.
cudaError_t LaunchMaskedConvDevice(const MaskedConvArgs& args, const ConvChoice& choice,
                                   cudaStream_t stream);

}  // namespace jaxsparse
