#include "cpu/isa/avx512/vec.h"

#include "cpu/tile/conv/shapes.h"

namespace jaxsparse {

const ConvIsa& MaskedConvAvx512() {
  static const ConvIsa table = MakeTable();
  return table;
}

}  // namespace jaxsparse
