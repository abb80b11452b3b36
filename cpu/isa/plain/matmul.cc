#include "cpu/isa/plain/transpose.h"

#include "cpu/tile/matmul/product.h"

namespace jaxsparse {

const MatmulIsa& MatmulPlain() {
  static const MatmulIsa table = MakeMatmulTable();
  return table;
}

}  // namespace jaxsparse
