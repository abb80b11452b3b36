// The saturated layer's multiply for avx512.
#include "cpu/isa/avx512/vec.h"

#include "cpu/tile/bounded/product.h"

namespace jaxsparse {

const BoundedIsa& BoundedAvx512() {
  static const BoundedIsa table = {Vec::kName, Multiply};
  return table;
}

}  // namespace jaxsparse
