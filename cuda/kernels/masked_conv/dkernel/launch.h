// Gradient of a masked convolution with respect to its kernel, from the listed active pixels only.
// Deterministic: pixels are split into ranges, each range sums into its own partial result, and the
// partials are added in order.
//
// Families (attribute `variant`) and what each takes; from 2 on dkernel/wgmma/launch.h:
//   0 direct  everything: any dtype of x, gy of that dtype or float32, any channel counts and
//   groups. 1 tiles   groups == 1; gy has the dtype of x; channels in and out are multiples of 16
//   bytes of elements
//             (8 for bfloat16 and float16, 4 for float32). Tensor cores for bfloat16, float16 and
//             TF32 (precision 0); float32 products on the CUDA cores for float32 with precision 1.
//
// Workspace in bytes, a function of shapes alone. E = kh*kw*C/groups*O, slots =
// capacity*tile_h*tile_w:
//   direct    units  = C == groups == O ? kh*kw * O/v              with v = 4 if O % 4 == 0 else 1
//                                       : kh*kw * ceil(C/groups/4) * O/v   with v = 4 if O/groups %
//                                       4 == 0 else 1
//             splits = clamp(1056 // ceil(units/128), 1, max(1, min(256, ceil(slots/128))))
//   tiles     n      = 64 if O <= 64 else 128
//             splits = clamp(264 // (ceil(kh*kw*C/128) * ceil(O/n)), 1, max(1, min(64,
//             ceil(slots/64))))
//   both      4*E*splits if splits > 1 else 0
#pragma once

#include "cuda/kernels/masked_conv/args.h"

namespace jaxsparse {

struct MaskedConvDkernelArgs {
  ConvGeometry geometry;  // lhs_dilation is 1
  TileList tiles;         // grid-aligned
  DType in_type, grad_type;
  bool highest;    // float32 products in float32, not TF32
  const void* x;   // in_type [batch, in_h, in_w, in_c]
  const void* gy;  // grad_type [batch, out_h, out_w, out_c]
  float* dkernel;  // [kernel_h, kernel_w, in_c/groups, out_c]
  void* scratch;
  int64_t scratch_bytes;
};

// Ranges of pixels of each family; the workspace holds one partial result a range.
int64_t DkernelDirectSplits(const ConvGeometry& geometry, const TileList& tiles);
int64_t DkernelTilesSplits(const ConvGeometry& geometry, const TileList& tiles);

// Bytes of workspace for that many ranges.
int64_t DkernelScratchBytes(const ConvGeometry& geometry, int64_t splits);

// Why the family `tiles` cannot run, or nullptr when it can.
const char* DkernelTilesReason(const MaskedConvDkernelArgs& args);

cudaError_t LaunchDkernelDirect(const MaskedConvDkernelArgs& args, cudaStream_t stream);
cudaError_t LaunchDkernelTiles(const MaskedConvDkernelArgs& args, cudaStream_t stream);

// Load every variant onto the current device.
cudaError_t PrepareDkernelDirect();
cudaError_t PrepareDkernelTiles();

}  // namespace jaxsparse
