// The kernels of frozen weights for plain.
#include "cpu/isa/transpose_plain.h"

#include "cpu/kernels/pruned_blocks.h"
#include "cpu/kernels/pruned_rows.h"

namespace jaxsparse {

const PrunedIsa& PrunedPlain() {
  static const PrunedIsa table = {Vec::kName, MultiplyRows,   LoadBlock,
                                  LoadRun,    TransposeBlock, StoreBlock};
  return table;
}

}  // namespace jaxsparse
