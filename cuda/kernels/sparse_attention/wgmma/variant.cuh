// The members of AttentionVariant, for the units that compile them.
#pragma once

#include "cuda/kernels/sparse_attention/wgmma/kernel.cuh"
#include "cuda/kernels/sparse_attention/wgmma/variant.h"

namespace jaxsparse {

// Stages: what 227 KB hold at a depth of 128.
template <typename T, int Depth>
struct AttentionConfigs {
  using Shared = AttentionConfig<T, Depth, Depth, kSharedTile.kv, 1, Depth == 128 ? 6 : 8>;
  using Own = AttentionConfig<T, Depth, Depth, kOwnTile.kv, 2, Depth == 128 ? 3 : 6>;
  static_assert(Shared::kRows == kSharedTile.rows && Own::kRows == kOwnTile.rows);
};

template <typename T, int Depth>
cudaError_t AttentionVariant<T, Depth>::Prepare() {
  using Configs = AttentionConfigs<T, Depth>;
  const cudaError_t status = PrepareAttentionTile<typename Configs::Shared>();
  return status == cudaSuccess ? PrepareAttentionTile<typename Configs::Own>() : status;
}

template <typename T, int Depth>
cudaError_t AttentionVariant<T, Depth>::Launch(const AttentionParams& p, const AttentionMaps& maps,
                                               bool shared, int ctas, cudaStream_t stream) {
  using Configs = AttentionConfigs<T, Depth>;
  if (shared) return LaunchAttentionTile<typename Configs::Shared>(p, maps, ctas, stream);
  return LaunchAttentionTile<typename Configs::Own>(p, maps, ctas, stream);
}

}  // namespace jaxsparse
