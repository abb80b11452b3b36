// The kernels of frozen weights for avx512.
#include "cpu/isa/avx512/transpose.h"

#include "cpu/tile/pruned/blocks.h"
#include "cpu/tile/pruned/depthwise.h"
#include "cpu/tile/pruned/dots.h"
#include "cpu/tile/pruned/rows.h"

namespace jaxsparse {

const PrunedIsa& PrunedAvx512() {
  static const PrunedIsa table = {Vec::kName,     MultiplyRows, LoadBlock,    LoadRun,
                                  TransposeBlock, StoreBlock,   MultiplyDots, Depthwise};
  return table;
}

}  // namespace jaxsparse
