// The kernels of sparse_ffn for neon.
#include "cpu/isa/neon/vec.h"

#include "cpu/tile/ffn/dots.h"
#include "cpu/tile/ffn/rows.h"

namespace jaxsparse {

const FfnIsa& FfnNeon() {
  static const FfnIsa table = {Vec::kName, AddRows, DotRows, LoadFloats, StoreFloats};
  return table;
}

}  // namespace jaxsparse
