// Host-side description of one masked product, and what its launchers share. No FFI headers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/bits/block_bits.h"
#include "cuda/core/dtype.h"
#include "cuda/tile/strip/params.h"

namespace jaxsparse {

struct MaskedMatmulArgs {
  int64_t lists, rows, depth, columns;  // L, m, k, n
  int64_t a_lists, b_lists;             // L or 1
  BlockBits a_bits, b_bits, out_bits;
  DType in_type, out_type;
  bool highest;  // float32 products in float32, not TF32
  bool turned;   // `a` lies as [a_lists, k, m]: for tiles of pieces, which turn what they keep
  const void* a;
  const void* b;
  void* out;
  void* scratch;
  int64_t scratch_bytes;
};

// On CUDA cores: any size, block and dtype.
cudaError_t LaunchMaskedMatmulDirect(const MaskedMatmulArgs& args, cudaStream_t stream);
cudaError_t PrepareMaskedMatmulDirect();

// On Hopper's tensor cores. The reason against it, or nullptr.
const char* MaskedMatmulStripsReason(const MaskedMatmulArgs& args);
// Whether tiles of pieces and panels can run: a mask of boxes on `a`, every output wanted.
bool MaskedMatmulTakesPieces(const MaskedMatmulArgs& args);
// Whether tiles of sorted columns can run: a mask on `a` whose blocks are whole 32 rows high and of
// any width, every output wanted.
bool MaskedMatmulTakesSorted(const MaskedMatmulArgs& args);
cudaError_t LaunchMaskedMatmulStrips(const MaskedMatmulArgs& args, StripChoice tile,
                                     cudaStream_t stream);
cudaError_t PrepareMaskedMatmulStrips();

// Workspace of the tensor-core kernel, from sizes and masks alone (no pointer is followed).
int64_t MaskedMatmulStripsScratchBytes(const MaskedMatmulArgs& args);

}  // namespace jaxsparse
