// The ring of stages of a masked product. How many there are depends on the tile, which only the
// device knows.
#pragma once

#include "cuda/core/mbarrier.cuh"
#include "cuda/tile/strip/tiles.cuh"

namespace jaxsparse {

struct StripRing {
  uint8_t stages[kStripRingBytes];
  uint64_t full[kStripStages], empty[kStripStages];
  unsigned live[kStripStages];  // pieces of `a` that a stage has
};

// Where a role stands in the ring.
struct StripStage {
  StripRing& ring;
  const StripShape& shape;
  int at = 0;
  uint32_t parity = 0;

  __device__ uint32_t data() const {
    return ptx::SharedAddress(ring.stages) + at * shape.stage_bytes;
  }
  __device__ uint32_t full() const { return ptx::SharedAddress(&ring.full[at]); }
  __device__ uint32_t empty() const { return ptx::SharedAddress(&ring.empty[at]); }
  __device__ void Advance() {
    if (++at == shape.stages) {
      at = 0;
      parity ^= 1;
    }
  }
};

}  // namespace jaxsparse
