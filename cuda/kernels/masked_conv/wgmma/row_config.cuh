// RowConfig: the configuration of a row of variants/masked_conv.toml, from its columns.
#pragma once

#include <type_traits>

#include "cuda/kernels/masked_conv/wgmma/box.cuh"
#include "cuda/kernels/masked_conv/wgmma/kernel.cuh"

namespace jaxsparse {

// C::kBox says which: RunBoxConv or RunMaskedConv is its body.
template <typename T, int TileM, int TileN, int Stages, int Cluster, int SplitK, int StreamK,
          int Box>
using RowConfig =
    std::conditional_t<Box != 0, BoxConvConfig<T, TileM, TileN, Stages, StreamK>,
                       MaskedConvConfig<T, TileM, TileN, Stages, Cluster, SplitK, StreamK>>;

}  // namespace jaxsparse
