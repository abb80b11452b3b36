// The saturated layer's multiply for avx2.
#include "cpu/isa/avx2/vec.h"

#include "cpu/tile/bounded/product.h"

namespace jaxsparse {

const BoundedIsa& BoundedAvx2() {
  static const BoundedIsa table = {Vec::kName, Multiply};
  return table;
}

}  // namespace jaxsparse
