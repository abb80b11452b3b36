// The kernels of wgmma.cuh as the launcher sees them: their parameters and one struct
// per element type.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "cuda/kernels/masked_conv/device/launch.h"
#include "cuda/tile/conv/box_plan.h"
#include "cuda/tile/conv/params.h"

namespace jaxsparse {

struct DeviceParams {
  ConvParams conv;  // but for conv.list
  int candidates;
  int variant[kMaxCandidates], source[kMaxCandidates];  // source: which of rows[]
  RowList rows[kMaxLists + 2];  // the lists, then every pixel in turn and every block of 8 x 8
  BoxPlan plan;                 // where a candidate loads boxes
  const int32_t* choice;        // nullptr: the cheapest by `costs`
  const float* costs;           // [candidates, 5]
};

// The most CTAs of a cluster where the device chooses: one, two or four.
inline constexpr int kMostParts = 4;
// The columns of the widest row.
inline constexpr int kMostColumns = 256;

template <typename T>
struct MaskedConvDevice {
  // Whether the kernel of all rows has a body for this variant.
  static bool Holds(int variant);
  // The columns of its tile.
  static int Columns(int variant);
  // How many CTAs of a cluster share weights, or a tile's K; 1: none do.
  static int Parts(int variant);
  // Whether it loads boxes.
  static bool LoadsBoxes(int variant);

  // Raises the shared-memory limit, loads the kernels, and says how many CTAs of any the current
  // device holds at once: ctas[s] in clusters of s.
  static cudaError_t Prepare(int (&ctas)[kMostParts + 1]);

  // `image` is read where a candidate loads boxes. `columns`: of the widest candidate. `plain`: see
  // IsPlainCall. `parts`: CTAs of a cluster, those of each candidate that needs one; candidates of
  // single CTAs run in clusters as they do without, on as many CTAs as fit then.
  static cudaError_t Launch(const DeviceParams& p, const CUtensorMap& weights,
                            const CUtensorMap& image, int ctas, int columns, bool plain, int parts,
                            cudaStream_t stream);
};

}  // namespace jaxsparse
