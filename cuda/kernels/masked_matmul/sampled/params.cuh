// What the index and the product of sampled tiles share. A tile has a panel of 64 rows of one
// operand (`fixed`) and 128 rows of the other (`picked`), in units that are wanted or not.
#pragma once

#include <cuda.h>

#include "cuda/kernels/masked_matmul/launch.h"

namespace jaxsparse {

inline constexpr int kPanelRows = 64;    // of the fixed operand
inline constexpr int kPickedRows = 128;  // of the other, a tile
inline constexpr int kUnitRows = 32;     // of it that TMA loads as one box

struct SampledParams {
  int lists, rows, depth, columns;  // of the result
  int fixed_rows, picked_rows;      // of the operands
  int fixed_lists, picked_lists;    // 1: the same for every product
  int slabs;                        // of K, 128 bytes each
  int panels, units, unit_words;    // of one product; 32 units a word
  int tiles;                        // of a panel, at most
  bool out_f32;
  BlockBits bits;
  int32_t* counts;     // [bits.lists, panels]: units that some row of the panel wants
  int32_t* listed;     // [bits.lists, panels, units]: which, ascending
  uint32_t* united;    // [bits.lists, panels, unit_words]: one bit each
  const void* picked;  // rows that cp.async gathers
  void* out;
};

cudaError_t LaunchSampledIndex(const SampledParams& p, bool boxes, cudaStream_t stream);
cudaError_t PrepareSampledIndex();

// `boxes`: a unit is 32 rows of `a` and the panel 64 rows of `b`; else it is one row of `b`, and
// the panel is of `a`.
cudaError_t LaunchSampledProduct(const SampledParams& p, bool boxes, DType type,
                                 const CUtensorMap& fixed, const CUtensorMap& picked,
                                 cudaStream_t stream);
cudaError_t PrepareSampledProduct();

}  // namespace jaxsparse
