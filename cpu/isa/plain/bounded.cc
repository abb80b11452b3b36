// The saturated layer's multiply for plain.
#include "cpu/isa/plain/vec.h"

#include "cpu/tile/bounded/product.h"

namespace jaxsparse {

const BoundedIsa& BoundedPlain() {
  static const BoundedIsa table = {Vec::kName, Multiply};
  return table;
}

}  // namespace jaxsparse
