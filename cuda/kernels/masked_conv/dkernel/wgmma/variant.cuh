// One row of variants/masked_conv_dkernel.toml in one element type: its kernel, prepared and
// launched.
#pragma once

#include "cuda/core/launch.h"
#include "cuda/kernels/masked_conv/dkernel/wgmma/kernel.cuh"
#include "cuda/kernels/masked_conv/dkernel/wgmma/variant.h"

namespace jaxsparse {

template <typename T, int TileM, int TileN, int Stages, int Groups>
cudaError_t DkernelVariant<T, TileM, TileN, Stages, Groups>::Prepare() {
  using C = DkernelConfig<T, TileM, TileN, Stages, Groups>;
  return PrepareKernel(&MaskedConvDkernelWgmma<C>, C::kSharedBytes);
}

template <typename T, int TileM, int TileN, int Stages, int Groups>
cudaError_t DkernelVariant<T, TileM, TileN, Stages, Groups>::Launch(const DkernelParams& p,
                                                                    cudaStream_t stream) {
  using C = DkernelConfig<T, TileM, TileN, Stages, Groups>;
  MaskedConvDkernelWgmma<C><<<p.workers, C::kThreads, C::kSharedBytes, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace jaxsparse
