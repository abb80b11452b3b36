#include "cpu/isa/avx2/vec.h"

#include "cpu/tile/conv/shapes.h"

namespace jaxsparse {

const ConvIsa& MaskedConvAvx2() {
  static const ConvIsa table = MakeTable();
  return table;
}

}  // namespace jaxsparse
