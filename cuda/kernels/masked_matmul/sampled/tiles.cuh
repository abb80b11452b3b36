// Which tiles of a sampled product a persistent CTA takes.
#pragma once

#include "cuda/kernels/masked_matmul/sampled/params.cuh"

namespace jaxsparse {

inline constexpr int kBoxUnits = kPickedRows / kUnitRows;  // of a tile

struct SampledTile {
  int list, panel;
  int first, count;      // of the panel's units
  const int32_t* units;  // from `first` on
};

// The tiles of one CTA that hold something: a warp looks at 32 at a time.
template <bool Boxes>
class SampledTiles {
 public:
  __device__ explicit SampledTiles(const SampledParams& p)
      : p_(p), base_(blockIdx.x), all_(int64_t{p.lists} * p.panels * p.tiles) {}

  __device__ bool Next(SampledTile* tile) {
    while (live_ == 0) {
      if (base_ >= all_) return false;
      const int64_t item = base_ + int64_t{threadIdx.x % 32} * gridDim.x;
      live_ = __ballot_sync(~0u, item < all_ && Count(item) > First(item));
      seen_ = base_;
      base_ += int64_t{32} * gridDim.x;
    }
    const int64_t item = seen_ + int64_t{__ffs(live_) - 1} * gridDim.x;
    live_ &= live_ - 1;
    const int64_t line = Line(item);
    tile->list = static_cast<int>(item % (int64_t{p_.lists} * p_.panels) / p_.panels);
    tile->panel = static_cast<int>(line % p_.panels);
    tile->first = First(item);
    tile->count = min(Count(item) - tile->first, kEach);
    tile->units = p_.listed + line * p_.units + tile->first;
    return true;
  }

 private:
  static constexpr int kEach = Boxes ? kBoxUnits : kPickedRows;

  // The panel's place in the index.
  __device__ int64_t Line(int64_t item) const {
    const int64_t place = item % (int64_t{p_.lists} * p_.panels);
    return p_.bits.lists == 1 ? place % p_.panels : place;
  }
  __device__ int First(int64_t item) const {
    return static_cast<int>(item / (int64_t{p_.lists} * p_.panels)) * kEach;
  }
  __device__ int Count(int64_t item) const { return __ldg(p_.counts + Line(item)); }

  const SampledParams& p_;
  int64_t base_, seen_ = 0, all_;
  uint32_t live_ = 0;
};

}  // namespace jaxsparse
