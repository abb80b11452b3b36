// The members of AttentionGradVariant, for the units that compile them.
#pragma once

#include "cuda/core/launch.h"
#include "cuda/kernels/sparse_attention/wgmma/grad/delta.cuh"
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

template <typename T, int Depth>
cudaError_t RunAttentionDelta(const AttentionGradArgs& a, cudaStream_t stream) {
  const AttentionArgs& f = a.forward;
  AttentionDeltaParams p = {};
  p.gout = a.gout;
  p.out = f.out;
  p.glse = a.glse;
  p.delta = a.delta;
  p.heads = MakeDivisor(f.heads);
  p.q_len = MakeDivisor(f.q_len);
  p.rows = f.batch * f.q_len * f.heads;
  return LaunchAttentionDelta<T, Depth>(p, stream);
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
  for (const cudaError_t status : {PrepareKernel(&AttentionDeltaKernel<T, Depth>, 0),
                                   PrepareAttentionGrad<typename Configs::Keys>(),
                                   PrepareAttentionGrad<typename Configs::Queries>()}) {
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

template <typename T, int Depth>
cudaError_t AttentionGradVariant<T, Depth>::Launch(const AttentionGradArgs& a, DType type,
                                                   int* counters, int processors,
                                                   cudaStream_t stream) {
  using Configs = AttentionGradConfigs<T, Depth>;
  int* const second = counters == nullptr ? nullptr : counters + 1;
  cudaError_t status = RunAttentionDelta<T, Depth>(a, stream);
  if (status != cudaSuccess) return status;
  status = RunAttentionGrad<typename Configs::Keys>(a, type, counters, processors, stream);
  if (status != cudaSuccess) return status;
  return RunAttentionGrad<typename Configs::Queries>(a, type, second, processors, stream);
}

}  // namespace jaxsparse
