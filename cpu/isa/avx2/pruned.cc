// The kernels of frozen weights for avx2.
#include "cpu/isa/avx2/transpose.h"

#include "cpu/tile/pruned/blocks.h"
#include "cpu/tile/pruned/rows.h"

namespace jaxsparse {

const PrunedIsa& PrunedAvx2() {
  static const PrunedIsa table = {Vec::kName, MultiplyRows,   LoadBlock,
                                  LoadRun,    TransposeBlock, StoreBlock};
  return table;
}

}  // namespace jaxsparse
