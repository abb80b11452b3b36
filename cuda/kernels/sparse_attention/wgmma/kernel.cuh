// Block-sparse attention on Hopper's tensor cores: listed key tiles -> scores -> softmax ->
// products.
//
// Floor:    4 * d operations for each kept pair of query and key at 790 TFLOP/s; an exponential for
//           each: 16 a cycle and multiprocessor, half of the tensor cores' time at d = 128 and all
//           of it at d = 64.
// Tile:     128 queries of one row of blocks (two warpgroups of 64 that share K and V), or 64
//           queries for each warpgroup with lists of its own; 128 keys, gathered from listed blocks
//           or cut out of them.
// Pipeline: one warp loads by TMA; a ring of stages that hold a tile of K or of V. The scores of
// the
//           next tile are started before the softmax of the present one.
// Grid:     persistent, one CTA a multiprocessor; query tiles come from a counter.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/kernels/sparse_attention/wgmma/check.cuh"
#include "cuda/kernels/sparse_attention/wgmma/consumer.cuh"
#include "cuda/kernels/sparse_attention/wgmma/producer.cuh"

namespace jaxsparse {

template <class C>
__device__ __forceinline__ void InitStream(typename C::Stream& s) {
  const auto init = [](uint64_t* barrier, int arrivals) {
    ptx::BarrierInit(ptx::SharedAddress(barrier), arrivals);
  };
  for (int i = 0; i < C::kStages; ++i) {
    init(&s.full[i], 1);
    init(&s.empty[i], 4 * C::kGroups);
  }
  for (int i = 0; i < C::kChecks; ++i) {
    init(&s.check_full[i], 1);
    init(&s.check_empty[i], C::kCheckWarps);
  }
  init(&s.q_full, 1);
  init(&s.q_empty, 4 * C::kGroups);
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    SparseAttentionWgmmaKernel(const __grid_constant__ AttentionParams p,
                               const __grid_constant__ AttentionMaps maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t raw[];
  const uint32_t skew = (1024 - ptx::SharedAddress(raw) % 1024) % 1024;
  auto& shared = *reinterpret_cast<typename C::Shared*>(raw + skew);
  if (threadIdx.x == 0) {
    for (auto& stream : shared.streams) InitStream<C>(stream);
    ptx::FenceBarrierInit();
  }
  __syncthreads();
  const int group = ptx::WarpgroupIndex();
  if (group < C::kConsumers) {
    ptx::RaiseRegisters<C::kConsumerRegisters>();
    Consumer<C>(p, shared, group).Run();
  } else {
    ptx::LowerRegisters<C::kProducerRegisters>();
    const int warp = ptx::WarpIndex() - 4 * C::kConsumers;
    if (warp < C::kStreams) {
      Producer<C>(p, maps, shared, warp).Run();
    } else if (warp >= 2) {
      CheckValues<C>(shared, (warp - 2) / C::kCheckWarps, (warp - 2) % C::kCheckWarps);
    }
  }
#endif
}

template <class C>
cudaError_t PrepareAttentionTile() {
  return cudaFuncSetAttribute(SparseAttentionWgmmaKernel<C>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize, C::kSharedBytes);
}

template <class C>
cudaError_t LaunchAttentionTile(const AttentionParams& p, const AttentionMaps& maps, int ctas,
                                cudaStream_t stream) {
  SparseAttentionWgmmaKernel<C><<<ctas, C::kThreads, C::kSharedBytes, stream>>>(p, maps);
  return cudaGetLastError();
}

}  // namespace jaxsparse
