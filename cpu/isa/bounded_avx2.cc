// The saturated layer's multiply for avx2.
#include "cpu/isa/vec_avx2.h"

#include "cpu/kernels/bounded_tile.h"

namespace jaxsparse {

const BoundedIsa& BoundedAvx2() {
  static const BoundedIsa table = {Vec::kName, Multiply};
  return table;
}

}  // namespace jaxsparse
