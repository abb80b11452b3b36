#include "cpu/isa/neon/transpose.h"

#include "cpu/tile/matmul/product.h"

namespace jaxsparse {

const MatmulIsa& MatmulNeon() {
  static const MatmulIsa table = MakeMatmulTable();
  return table;
}

}  // namespace jaxsparse
