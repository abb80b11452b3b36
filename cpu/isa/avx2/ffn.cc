// The kernels of sparse_ffn for avx2.
#include "cpu/isa/avx2/vec.h"

#include "cpu/tile/ffn/dots.h"
#include "cpu/tile/ffn/rows.h"

namespace jaxsparse {

const FfnIsa& FfnAvx2() {
  static const FfnIsa table = {Vec::kName, AddRows, DotRows, LoadFloats, StoreFloats};
  return table;
}

}  // namespace jaxsparse
