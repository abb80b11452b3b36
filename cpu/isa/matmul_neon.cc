#include "cpu/isa/vec_neon.h"

#include "cpu/kernels/matmul_tile.h"

namespace jaxsparse {

const MatmulIsa& MatmulNeon() {
  static const MatmulIsa table = MakeMatmulTable();
  return table;
}

}  // namespace jaxsparse
