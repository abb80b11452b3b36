// The kernels of frozen weights for avx512.
#include "cpu/isa/transpose_avx512.h"

#include "cpu/kernels/pruned_blocks.h"
#include "cpu/kernels/pruned_rows.h"

namespace jaxsparse {

const PrunedIsa& PrunedAvx512() {
  static const PrunedIsa table = {Vec::kName, MultiplyRows,   LoadBlock,
                                  LoadRun,    TransposeBlock, StoreBlock};
  return table;
}

}  // namespace jaxsparse
