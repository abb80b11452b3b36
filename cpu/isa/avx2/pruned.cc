// The kernels of frozen weights for avx2.
#include "cpu/isa/avx2/transpose.h"

#include "cpu/tile/pruned/blocks.h"
#include "cpu/tile/pruned/depthwise.h"
#include "cpu/tile/pruned/dots.h"
#include "cpu/tile/pruned/rows.h"

namespace jaxsparse {

const PrunedIsa& PrunedAvx2() {
  static const PrunedIsa table = {Vec::kName,     MultiplyRows, LoadBlock,    LoadRun,
                                  TransposeBlock, StoreBlock,   MultiplyDots, Depthwise};
  return table;
}

}  // namespace jaxsparse
