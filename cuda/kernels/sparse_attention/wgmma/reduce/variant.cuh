// The members of AttentionReduceVariant, for the units that compile them.
#pragma once

#include <algorithm>

#include "cuda/core/launch.h"
#include "cuda/kernels/sparse_attention/wgmma/grad/setup.h"
#include "cuda/kernels/sparse_attention/wgmma/reduce/kernel.cuh"
#include "cuda/kernels/sparse_attention/wgmma/reduce/sums.cuh"
#include "cuda/kernels/sparse_attention/wgmma/reduce/variant.h"

namespace jaxsparse {

template <typename T, int Depth>
cudaError_t AttentionReduceVariant<T, Depth>::Prepare() {
  using Config = AttentionReduceConfig<T, Depth>;
  const cudaError_t status = PrepareKernel(&RoundSumsKernel<T, Depth>, 0);
  if (status != cudaSuccess) return status;
  return PrepareKernel(&SparseAttentionReduceKernel<Config>, Config::kSharedBytes);
}

template <typename T, int Depth>
cudaError_t AttentionReduceVariant<T, Depth>::Launch(const AttentionGradArgs& a, DType type,
                                                     float* sums, int* counter, int processors,
                                                     cudaStream_t stream) {
  using Config = AttentionReduceConfig<T, Depth>;
  const AttentionArgs& f = a.forward;
  const int strips = static_cast<int>(CeilDiv(f.q_len, kStripRows));
  const int64_t runs = int64_t{f.batch} * f.heads * strips * (Depth / 64);
  AttentionGradParams p = MakeAttentionGradParams(a, true, Config::kOther, counter);
  p.sums = sums;
  p.query_strips = strips;
  if (p.items > 0) {
    AttentionGradMaps maps = {};
    cudaError_t status = MakeAttentionGradMaps(a, type, true, p.piece_rows, &maps);
    if (status != cudaSuccess) return status;
    SparseAttentionReduceKernel<Config>
        <<<AttentionGradCtas(p, processors), Config::kThreads, Config::kSharedBytes, stream>>>(
            p, maps);
    status = cudaGetLastError();
    if (status != cudaSuccess) return status;
  }
  if (runs > 0) {
    const auto ctas = static_cast<unsigned>(
        std::min<int64_t>(8 * int64_t{processors}, CeilDiv(runs, kSumThreads / 32)));
    RoundSumsKernel<T, Depth><<<ctas, kSumThreads, 0, stream>>>(
        reinterpret_cast<const float4*>(sums), static_cast<T*>(a.dq), runs, f.q_len, strips,
        f.heads, f.scale);
  }
  return cudaGetLastError();
}

}  // namespace jaxsparse
