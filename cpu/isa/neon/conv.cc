#include "cpu/isa/neon/vec.h"

#include "cpu/tile/conv/shapes.h"

namespace jaxsparse {

const ConvIsa& MaskedConvNeon() {
  static const ConvIsa table = MakeTable();
  return table;
}

}  // namespace jaxsparse
