#include "cpu/isa/avx512/transpose.h"

#include "cpu/tile/matmul/product.h"

namespace jaxsparse {

const MatmulIsa& MatmulAvx512() {
  static const MatmulIsa table = MakeMatmulTable();
  return table;
}

}  // namespace jaxsparse
