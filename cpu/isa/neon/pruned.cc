// The kernels of frozen weights for neon.
#include "cpu/isa/neon/transpose.h"

#include "cpu/tile/pruned/blocks.h"
#include "cpu/tile/pruned/rows.h"

namespace jaxsparse {

const PrunedIsa& PrunedNeon() {
  static const PrunedIsa table = {Vec::kName, MultiplyRows,   LoadBlock,
                                  LoadRun,    TransposeBlock, StoreBlock};
  return table;
}

}  // namespace jaxsparse
