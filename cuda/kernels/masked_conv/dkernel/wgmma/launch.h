// Launchers of the kernel gradient on Hopper's tensor cores. Rows are the tensor-core rows of
// variants/masked_conv_dkernel.toml, from 0: a variant's number less 2.
#pragma once

#include "cuda/kernels/masked_conv/dkernel/launch.h"

namespace jaxsparse {

// The attribute `variant` of row 0; below it are the families of dkernel/launch.h.
constexpr int64_t kFirstDkernelRow = 2;

// Why row `row` cannot run this problem on the current device, or nullptr when it can.
const char* DkernelWgmmaReason(const MaskedConvDkernelArgs& args, int64_t row);

// Workspace in bytes, of shapes alone: 16 bytes a pixel slot, and the parts of tiles.
int64_t DkernelWgmmaScratchBytes(const ConvGeometry& geometry, const TileList& tiles, int64_t row);

// The same of any value of the attribute `variant`.
inline int64_t DkernelWorkspace(const ConvGeometry& geometry, const TileList& tiles,
                                int64_t variant) {
  if (variant >= kFirstDkernelRow) {
    return DkernelWgmmaScratchBytes(geometry, tiles, variant - kFirstDkernelRow);
  }
  return DkernelScratchBytes(geometry, variant == 0 ? DkernelDirectSplits(geometry, tiles)
                                                    : DkernelTilesSplits(geometry, tiles));
}

// Once per device, before the first launch and outside any capture: loads every row.
cudaError_t PrepareDkernelWgmma();

// Three launches: pixels, products, sum of parts. Device work only.
cudaError_t LaunchDkernelWgmma(const MaskedConvDkernelArgs& args, int64_t row, cudaStream_t stream);

}  // namespace jaxsparse
