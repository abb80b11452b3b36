// Pipeline: a ring of stages between the warpgroup that loads and those that multiply. A stage is
// full when every gather thread's copies and the weights' bytes have landed, and empty when every
// consumer warp of the cluster has let it go.
#pragma once

#include "cuda/core/mbarrier.cuh"

namespace jaxsparse {

// Where a role stands in the ring.
template <int Stages>
struct RingPosition {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void Advance() {
    if (++stage == Stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

template <int Stages, int GatherThreads, int ConsumerWarps, int Cluster>
struct Pipeline {
  uint64_t full[Stages], empty[Stages];

  // One thread, before anyone else looks.
  __device__ void Init() {
    for (int s = 0; s < Stages; ++s) {
      ptx::BarrierInit(Full(s), GatherThreads + 1);
      ptx::BarrierInit(Empty(s), ConsumerWarps * Cluster);
    }
    ptx::FenceBarrierInit();
  }

  __device__ uint32_t Full(int s) { return ptx::SharedAddress(&full[s]); }
  __device__ uint32_t Empty(int s) { return ptx::SharedAddress(&empty[s]); }

  // Producers: the first round finds every stage empty.
  __device__ void WaitEmpty(const RingPosition<Stages>& at) {
    ptx::BarrierWait(Empty(at.stage), at.parity ^ 1);
  }

  __device__ void WaitFull(const RingPosition<Stages>& at) {
    ptx::BarrierWait(Full(at.stage), at.parity);
  }

  // Every lane of a consumer warp calls this; lane r tells CTA r of the cluster.
  __device__ void Release(int stage, int lane) {
    if constexpr (Cluster == 1) {
      if (lane == 0) ptx::BarrierArrive(Empty(stage));
    } else {
      if (lane < Cluster) ptx::BarrierArriveRemote(Empty(stage), lane);
    }
  }
};

}  // namespace jaxsparse
