// The gradients of block-sparse attention on Hopper's tensor cores: probabilities from the lse that
// the forward call wrote, no sums across CTAs, the same bits every time.
//
// Floor:    14 * d operations for each kept pair of query and key (four products for dk and dv,
//           three for dq; scores and dots are computed twice) at 790 TFLOP/s.
// Tile:     64 owned rows a warpgroup, keys or queries; 64 rows of the other side (128 for dq at a
//           depth of 64), gathered from listed blocks.
// Pipeline: one warp loads by TMA; a ring of slots that hold both tiles of the other side (q and
//           gout, or k and v). Accumulators of scores^T are the operands of the sums, in their own
//           layout.
// Grid:     persistent, one CTA a multiprocessor.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/kernels/sparse_attention/wgmma/grad/check.cuh"
#include "cuda/kernels/sparse_attention/wgmma/grad/consumer.cuh"
#include "cuda/kernels/sparse_attention/wgmma/grad/producer.cuh"

namespace jaxsparse {

template <class C>
__device__ __forceinline__ void InitGradBarriers(typename C::Shared& s, int streams) {
  const auto init = [](uint64_t* barrier, int arrivals) {
    ptx::BarrierInit(ptx::SharedAddress(barrier), arrivals);
  };
  const int warps = 8 / streams;
  for (int i = 0; i < C::kSlots; ++i) {
    init(&s.full[i], 1);
    init(&s.empty[i], warps);
  }
  for (int i = 0; i < 2; ++i) {
    init(&s.own_full[i], 1);
    init(&s.own_empty[i], warps);
    init(&s.check_full[i], 1);
    init(&s.check_empty[i], 1);
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    SparseAttentionGradWgmmaKernel(const __grid_constant__ AttentionGradParams p,
                                   const __grid_constant__ AttentionGradMaps maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t raw[];
  const uint32_t skew = (1024 - ptx::SharedAddress(raw) % 1024) % 1024;
  auto& shared = *reinterpret_cast<typename C::Shared*>(raw + skew);
  if (threadIdx.x == 0) {
    InitGradBarriers<C>(shared, p.streams);
    ptx::FenceBarrierInit();
  }
  __syncthreads();
  const int group = ptx::WarpgroupIndex();
  if (group < 2) {
    ptx::RaiseRegisters<C::kConsumerRegisters>();
    GradConsumer<C>(p, shared, group).Run();
  } else {
    ptx::LowerRegisters<C::kProducerRegisters>();
    const int warp = ptx::WarpIndex() - 8;
    if (warp < p.streams) {
      GradProducer<C>(p, maps, shared, warp).Run();
    } else if (warp >= 2) {
      CheckGradTiles<C>(p, shared, warp - 2);
    }
  }
#endif
}

template <class C>
cudaError_t PrepareAttentionGrad() {
  return cudaFuncSetAttribute(SparseAttentionGradWgmmaKernel<C>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize, C::kSharedBytes);
}

template <class C>
cudaError_t LaunchAttentionGrad(const AttentionGradParams& p, const AttentionGradMaps& maps,
                                int ctas, cudaStream_t stream) {
  SparseAttentionGradWgmmaKernel<C><<<ctas, C::kThreads, C::kSharedBytes, stream>>>(p, maps);
  return cudaGetLastError();
}

}  // namespace jaxsparse
