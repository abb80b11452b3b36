#include "cpu/isa/avx2/transpose.h"

#include "cpu/tile/matmul/product.h"

namespace jaxsparse {

const MatmulIsa& MatmulAvx2() {
  static const MatmulIsa table = MakeMatmulTable();
  return table;
}

}  // namespace jaxsparse
