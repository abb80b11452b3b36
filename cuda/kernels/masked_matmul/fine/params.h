// What the packing and the product of a fine mask share: sizes, and what lies in the workspace.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/bits/block_bits.h"
#include "cuda/core/dtype.h"

namespace jaxsparse {

inline constexpr int kGroupRows = 16;   // rows of `a` that share a list of columns
inline constexpr int kTileGroups = 16;  // of a tile: 256 rows
inline constexpr int kFineRows = kGroupRows * kTileGroups, kFineColumns = 128;
inline constexpr int kFineSlabBytes = 512;  // of K in a stage: 256 columns of `a`, 128 in float32
inline constexpr int kFineStepBytes = 32;   // of K in a product of the tensor cores
inline constexpr int kFineSteps = kFineSlabBytes / kFineStepBytes;  // of a slab, at most
inline constexpr int kFineMaxDepth = 1 << 19;

// A step of a group: the entries of `a` at 16 columns of its list (8 in float32), 16 bytes a lane
// of the warp that multiplies them, and which columns these are, a byte each, from the slab's first
// on.
inline constexpr int kFragmentBytes = 512, kListBytes = 16;
inline constexpr int kRecordBytes = kFragmentBytes + kListBytes;

struct FineParams {
  int lists, rows, depth, columns;
  int a_lists, b_lists, pack_lists;
  int slabs, row_tiles, column_tiles;
  bool out_f32;
  BlockBits bits;
  const void* a;
  void* out;
  uint8_t* steps;  // [pack_lists, row_tiles, slabs, groups]: how many steps each group has
  char* records;   // [pack_lists, row_tiles, groups, slabs, kFineSteps] records
};

cudaError_t LaunchFinePack(const FineParams& p, DType type, cudaStream_t stream);
cudaError_t LaunchFineProduct(const FineParams& p, DType type, const CUtensorMap& b_map,
                              cudaStream_t stream);
cudaError_t PrepareFinePack();
cudaError_t PrepareFineProduct();

}  // namespace jaxsparse
