// The saturated layer's multiply for neon.
#include "cpu/isa/neon/vec.h"

#include "cpu/tile/bounded/product.h"

namespace jaxsparse {

const BoundedIsa& BoundedNeon() {
  static const BoundedIsa table = {Vec::kName, Multiply};
  return table;
}

}  // namespace jaxsparse
