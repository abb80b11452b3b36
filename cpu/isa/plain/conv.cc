#include "cpu/isa/plain/vec.h"

#include "cpu/tile/conv/shapes.h"

namespace jaxsparse {

const ConvIsa& MaskedConvPlain() {
  static const ConvIsa table = MakeTable();
  return table;
}

}  // namespace jaxsparse
