#include "cpu/isa/vec_plain.h"

#include "cpu/kernels/masked_conv_shapes.h"

namespace jaxsparse {

const ConvIsa& MaskedConvPlain() {
  static const ConvIsa table = MakeTable();
  return table;
}

}  // namespace jaxsparse
