// The kernels of frozen weights for neon.
#include "cpu/isa/neon/transpose.h"

#include "cpu/tile/pruned/blocks.h"
#include "cpu/tile/pruned/depthwise.h"
#include "cpu/tile/pruned/dots.h"
#include "cpu/tile/pruned/rows.h"

namespace jaxsparse {

const PrunedIsa& PrunedNeon() {
  static const PrunedIsa table = {Vec::kName,     MultiplyRows, LoadBlock,    LoadRun,
                                  TransposeBlock, StoreBlock,   MultiplyDots, Depthwise};
  return table;
}

}  // namespace jaxsparse
