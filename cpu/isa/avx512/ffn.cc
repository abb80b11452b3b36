// The kernels of sparse_ffn for avx512.
#include "cpu/isa/avx512/vec.h"

#include "cpu/tile/ffn/dots.h"
#include "cpu/tile/ffn/rows.h"

namespace jaxsparse {

const FfnIsa& FfnAvx512() {
  static const FfnIsa table = {Vec::kName, AddRows, DotRows, LoadFloats, StoreFloats};
  return table;
}

}  // namespace jaxsparse
