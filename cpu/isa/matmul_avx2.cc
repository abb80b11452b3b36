#include "cpu/isa/vec_avx2.h"

#include "cpu/kernels/matmul_tile.h"

namespace jaxsparse {

const MatmulIsa& MatmulAvx2() {
  static const MatmulIsa table = MakeMatmulTable();
  return table;
}

}  // namespace jaxsparse
