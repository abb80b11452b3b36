#include "cpu/isa/vec_avx512.h"

#include "cpu/kernels/matmul_tile.h"

namespace jaxsparse {

const MatmulIsa& MatmulAvx512() {
  static const MatmulIsa table = MakeMatmulTable();
  return table;
}

}  // namespace jaxsparse
