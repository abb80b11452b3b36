// The saturated layer's multiply for plain.
#include "cpu/isa/vec_plain.h"

#include "cpu/kernels/bounded_tile.h"

namespace jaxsparse {

const BoundedIsa& BoundedPlain() {
  static const BoundedIsa table = {Vec::kName, Multiply};
  return table;
}

}  // namespace jaxsparse
