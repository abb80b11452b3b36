// The members of AttentionGradVariant, for the units that compile them.
#pragma once

#include "cuda/kernels/sparse_attention/wgmma/grad/kernel.cuh"
#include "cuda/kernels/sparse_attention/wgmma/grad/setup.h"
#include "cuda/kernels/sparse_attention/wgmma/grad/variant.h"

namespace jaxsparse {

// One kernel's parameters, maps and launch.
template <class C>
cudaError_t RunAttentionGrad(const AttentionGradArgs& a, DType type, int* counter, int processors,
                             cudaStream_t stream) {
  const AttentionGradParams p = MakeAttentionGradParams(a, C::kKeys, C::kOther, counter);
  if (p.items == 0) return cudaSuccess;
  AttentionGradMaps maps = {};
  const cudaError_t status = MakeAttentionGradMaps(a, type, C::kKeys, p.piece_rows, &maps);
  if (status != cudaSuccess) return status;
  return LaunchAttentionGrad<C>(p, maps, AttentionGradCtas(p, processors), stream);
}

// Rows of the other side that a kernel takes at a time: what the registers of a warpgroup hold.
template <typename T, int Depth>
struct AttentionGradConfigs {
  using Keys = AttentionGradConfig<T, Depth, true, 64>;
  using Queries = AttentionGradConfig<T, Depth, false, Depth == 64 ? 128 : 64>;
};

template <typename T, int Depth>
cudaError_t AttentionGradVariant<T, Depth>::Prepare() {
  using Configs = AttentionGradConfigs<T, Depth>;
  const cudaError_t status = PrepareAttentionGrad<typename Configs::Keys>();
  return status == cudaSuccess ? PrepareAttentionGrad<typename Configs::Queries>() : status;
}

template <typename T, int Depth>
cudaError_t AttentionGradVariant<T, Depth>::Launch(const AttentionGradArgs& a, DType type,
                                                   int* counters, int processors,
                                                   cudaStream_t stream) {
  using Configs = AttentionGradConfigs<T, Depth>;
  int* const second = counters == nullptr ? nullptr : counters + 1;
  const cudaError_t status =
      RunAttentionGrad<typename Configs::Keys>(a, type, counters, processors, stream);
  if (status != cudaSuccess) return status;
  return RunAttentionGrad<typename Configs::Queries>(a, type, second, processors, stream);
}

}  // namespace jaxsparse
