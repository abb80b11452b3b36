// A masked convolution in the terms of the Hopper engine, for the launchers of its kernels.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/kernels/masked_conv/args.h"
#include "cuda/tile/conv/box_plan.h"
#include "cuda/tile/conv/params.h"

namespace jaxsparse {

inline constexpr int kMaxConvCtas = 144;  // of one launch

// Why no tensor-core kernel takes these operands: float32 products that are asked for, types,
// alignment; or nullptr.
const char* ConvOperandReason(const MaskedConvArgs& args);

// Why a kernel that counts pixels, taps and channels in 32 bits cannot run this problem: groups,
// sizes; or nullptr.
const char* ConvSizeReason(const MaskedConvArgs& args);

// Why the engine cannot run this problem on the current device, or nullptr when it can.
const char* ConvProblemReason(const MaskedConvArgs& args);

// Steps of K: of 128 bytes each.
int64_t ConvKSteps(const ConvGeometry& geometry, DType type);

// Workspace of MapConvWeights, at the front of the scratch.
int64_t ConvWeightBytes(const ConvGeometry& geometry, DType type);

// Whether no mask can overflow the list: then a pixel is a tile's or is unset, and the kernel that
// computes the tiles may write the zeros (ConvParams::zero_fill) without any order between the two.
bool ListHoldsEveryTile(const ConvGeometry& geometry, const TileList& list);

// The tiles of `list` as the rows of a product.
RowList MakeRowList(const ConvGeometry& geometry, const TileList& list);

// The engine's parameters; `zero_fill`, `flags`, `mark` and `parts` are left for the caller.
ConvParams MakeConvParams(const MaskedConvArgs& args);

// The tensor map of the weights; float32 ones are transposed into the scratch first, by one launch.
cudaError_t MapConvWeights(const MaskedConvArgs& args, cudaStream_t stream, CUtensorMap* map);

// How the taps share boxes of the image, and the tensor map that loads them; for 128-byte multiples
// of channels.
cudaError_t MapConvImage(const MaskedConvArgs& args, const ConvParams& p, BoxPlan* plan,
                         CUtensorMap* map);

}  // namespace jaxsparse
