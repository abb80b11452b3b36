// What the index, the packing and the product of strips share: costs, the workspace's parts, the
// launches.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/core/dtype.h"
#include "cuda/kernels/masked_matmul/launch.h"
#include "cuda/tile/strip/params.h"

namespace jaxsparse {

// Cover cost of the tiles: what a slab takes (measured, 10 ns a CTA) where
// TMA loads boxes of both operands, where rows of `b` are gathered, and where all of them are taken
// in runs.
inline constexpr int kWideCost = 65, kTallCost = 37;
inline constexpr int kWideGatherCost = 61, kTallGatherCost = 53;
inline constexpr int kWideRunCost = 45, kTallRunCost = 37;

// Parts of the workspace: offsets in bytes, each a multiple of 1024.
struct StripWorkspace {
  int64_t slabs[2], entries[2], live_blocks[2], blocks[2], packed, masked_b, bytes;
  int64_t piece_slabs, piece_entries, sorted_columns, sorted_blocks, sorted_ends;
};

// Whether the blocks of `a` are whole pieces of rows and whole slabs: TMA loads them in place.
inline bool TakesBoxes(const MaskedMatmulArgs& a) {
  if (a.a_bits.words == nullptr) return true;
  const int64_t slab = kSlabBytes / ElementBytes(a.in_type);
  return a.a_bits.row_size % kPieceRows == 0 && a.a_bits.col_size % slab == 0;
}

cudaError_t LaunchStripIndex(const StripParams& p, cudaStream_t stream);
cudaError_t LaunchStripPack(const StripParams& p, DType type, cudaStream_t stream);
cudaError_t LaunchPieceTurn(const StripParams& p, DType type, cudaStream_t stream);
cudaError_t PreparePieceTurn();
cudaError_t LaunchStripProduct(const StripParams& p, DType type, const CUtensorMap& a_map,
                               const CUtensorMap& b_map, cudaStream_t stream);
cudaError_t LaunchSortedIndex(const StripParams& p, cudaStream_t stream);
cudaError_t LaunchSortedPack(const StripParams& p, DType type, cudaStream_t stream);
cudaError_t LaunchSortedProduct(const StripParams& p, DType type, const CUtensorMap& b_map,
                                cudaStream_t stream);
cudaError_t PrepareSortedIndex();
cudaError_t PrepareSortedPack();
cudaError_t PrepareSortedProduct();
cudaError_t LaunchPieceProduct(const StripParams& p, DType type, const CUtensorMap& a_map,
                               const CUtensorMap& b_map, cudaStream_t stream);
cudaError_t LaunchPanelProduct(const StripParams& p, DType type, const CUtensorMap& a_map,
                               const CUtensorMap& b_map, cudaStream_t stream);
cudaError_t PreparePieceProduct();
cudaError_t PreparePanelProduct();
cudaError_t PrepareStripIndex();
cudaError_t PrepareStripPack();
cudaError_t PrepareStripProduct();

}  // namespace jaxsparse
