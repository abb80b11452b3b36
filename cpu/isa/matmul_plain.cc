#include "cpu/isa/vec_plain.h"

#include "cpu/kernels/matmul_tile.h"

namespace jaxsparse {

const MatmulIsa& MatmulPlain() {
  static const MatmulIsa table = MakeMatmulTable();
  return table;
}

}  // namespace jaxsparse
