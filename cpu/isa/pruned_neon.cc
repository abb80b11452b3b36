// The kernels of frozen weights for neon.
#include "cpu/isa/transpose_neon.h"

#include "cpu/kernels/pruned_blocks.h"
#include "cpu/kernels/pruned_rows.h"

namespace jaxsparse {

const PrunedIsa& PrunedNeon() {
  static const PrunedIsa table = {Vec::kName, MultiplyRows,   LoadBlock,
                                  LoadRun,    TransposeBlock, StoreBlock};
  return table;
}

}  // namespace jaxsparse
