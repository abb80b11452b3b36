// The kernels of sparse_ffn for plain.
#include "cpu/isa/plain/vec.h"

#include "cpu/tile/ffn/dots.h"
#include "cpu/tile/ffn/rows.h"

namespace jaxsparse {

const FfnIsa& FfnPlain() {
  static const FfnIsa table = {Vec::kName, AddRows, DotRows, LoadFloats, StoreFloats};
  return table;
}

}  // namespace jaxsparse
