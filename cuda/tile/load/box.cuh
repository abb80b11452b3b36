// BoxLoad: TMA fills the A operand, one box a block of 8 x 8 output pixels and a row's worth of
// channels: 128 bytes, or 64 where a pixel has no more. What lies outside of the image arrives as
// zeros (the phantom read, after DynaSpa 3.1). The taps of a box are read from it in place: see
// BoxPlan.
#pragma once

#include "cuda/core/async_copy.cuh"
#include "cuda/core/mbarrier.cuh"
#include "cuda/tile/conv/block_rows.cuh"

namespace jaxsparse {

class BoxLoad {
 public:
  // `channels`: elements of a row.
  __device__ BoxLoad(const ConvParams& p, const BoxPlan& plan, const CUtensorMap* map, int channels)
      : p_(p), plan_(plan), map_(map), channels_(channels) {}

  // Goes to `block`.
  template <class Rows>
  __device__ void Begin(const Rows& rows, int block) {
    const OutputPixel origin = rows.Origin(block);
    exists_ = origin.active && origin.y < p_.out_h && origin.x < p_.out_w;
    b_ = origin.b;
    y_ = origin.y * p_.stride_h - p_.pad_top;
    x_ = origin.x * p_.stride_w - p_.pad_left;
  }

  // Starts the box of `step` and of channel slab `slab` on its way to `shared`; arrives at
  // `barrier`, where there is no block at once: its rows are never stored.
  __device__ void Load(uint32_t shared, const BoxStep& step, int slab, uint32_t barrier) const {
    if (!exists_) {
      ptx::BarrierArrive(barrier);
      return;
    }
    ptx::BarrierArriveExpect(barrier, plan_.bytes);
    ptx::LoadImageBox(shared, map_, slab * channels_, x_ + step.dx, y_ + step.dy, b_, barrier);
  }

 private:
  const ConvParams& p_;
  const BoxPlan& plan_;
  const CUtensorMap* map_;
  int channels_;
  int b_ = 0, y_ = 0, x_ = 0;
  bool exists_ = false;
};

}  // namespace jaxsparse
