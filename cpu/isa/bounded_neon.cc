// The saturated layer's multiply for neon.
#include "cpu/isa/vec_neon.h"

#include "cpu/kernels/bounded_tile.h"

namespace jaxsparse {

const BoundedIsa& BoundedNeon() {
  static const BoundedIsa table = {Vec::kName, Multiply};
  return table;
}

}  // namespace jaxsparse
