#include "cpu/isa/vec_neon.h"

#include "cpu/kernels/masked_conv_shapes.h"

namespace jaxsparse {

const ConvIsa& MaskedConvNeon() {
  static const ConvIsa table = MakeTable();
  return table;
}

}  // namespace jaxsparse
