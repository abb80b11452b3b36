// The kernels of frozen weights for avx2.
#include "cpu/isa/transpose_avx2.h"

#include "cpu/kernels/pruned_blocks.h"
#include "cpu/kernels/pruned_rows.h"

namespace jaxsparse {

const PrunedIsa& PrunedAvx2() {
  static const PrunedIsa table = {Vec::kName, MultiplyRows,   LoadBlock,
                                  LoadRun,    TransposeBlock, StoreBlock};
  return table;
}

}  // namespace jaxsparse
