#include "cpu/isa/vec_avx2.h"

#include "cpu/kernels/masked_conv_shapes.h"

namespace jaxsparse {

const ConvIsa& MaskedConvAvx2() {
  static const ConvIsa table = MakeTable();
  return table;
}

}  // namespace jaxsparse
