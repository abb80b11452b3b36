// The saturated layer's multiply for avx512.
#include "cpu/isa/vec_avx512.h"

#include "cpu/kernels/bounded_tile.h"

namespace jaxsparse {

const BoundedIsa& BoundedAvx512() {
  static const BoundedIsa table = {Vec::kName, Multiply};
  return table;
}

}  // namespace jaxsparse
