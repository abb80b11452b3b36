// The gradients of block-sparse attention in one kernel on Hopper's tensor cores: scores and dots
// are computed once, and dq is added up in global memory.
//
// Floor:    10 * d operations for each kept pair of query and key at 790 TFLOP/s.
// Tile:     128 owned keys, 64 a warpgroup; 64 queries, gathered from listed blocks.
// Pipeline: one warp loads by TMA; a ring of slots that hold a tile of q and of gout. Scores^T are
//           the operands of dv and dk in their own layout; dS^T goes through shared memory for dq,
//           which leaves by bulk reductions while the next scores are multiplied.
// Grid:     persistent, one CTA a multiprocessor. The order of the sums of dq differs from run to
//           run; those of dk and dv are in order.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/kernels/sparse_attention/wgmma/grad/check.cuh"
#include "cuda/kernels/sparse_attention/wgmma/grad/producer.cuh"
#include "cuda/kernels/sparse_attention/wgmma/reduce/consumer.cuh"

namespace jaxsparse {

template <class C>
__device__ __forceinline__ void InitReduceBarriers(typename C::Shared& s) {
  const auto init = [](uint64_t* barrier, int arrivals) {
    ptx::BarrierInit(ptx::SharedAddress(barrier), arrivals);
  };
  constexpr int kWarps = 8;
  for (int i = 0; i < C::kSlots; ++i) {
    init(&s.full[i], 1);
    init(&s.empty[i], kWarps);
  }
  init(&s.own_full[0], 1);
  init(&s.own_empty[0], kWarps);
  for (int i = 0; i < 2; ++i) {
    init(&s.check_full[i], 1);
    init(&s.check_empty[i], 1);
    init(&s.grads_full[i], C::kExchanging);
    init(&s.grads_empty[i], C::kExchanging);
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    SparseAttentionReduceKernel(const __grid_constant__ AttentionGradParams p,
                                const __grid_constant__ AttentionGradMaps maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t raw[];
  const uint32_t skew = (1024 - ptx::SharedAddress(raw) % 1024) % 1024;
  auto& shared = *reinterpret_cast<typename C::Shared*>(raw + skew);
  if (threadIdx.x == 0) {
    InitReduceBarriers<C>(shared);
    ptx::FenceBarrierInit();
  }
  __syncthreads();
  const int group = ptx::WarpgroupIndex();
  if (group < 2) {
    ptx::RaiseRegisters<C::kConsumerRegisters>();
    ReduceConsumer<C>(p, shared, group).Run();
  } else {
    ptx::LowerRegisters<C::kProducerRegisters>();
    const int warp = ptx::WarpIndex() - 8;
    if (warp == 0) {
      GradProducer<C>(p, maps, shared, 0).Run();
    } else if (warp >= 2) {
      CheckGradTiles<C>(p, shared, warp - 2);
    }
  }
#endif
}

}  // namespace jaxsparse
