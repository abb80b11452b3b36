#include "cpu/isa/vec_avx512.h"

#include "cpu/kernels/masked_conv_shapes.h"

namespace jaxsparse {

const ConvIsa& MaskedConvAvx512() {
  static const ConvIsa table = MakeTable();
  return table;
}

}  // namespace jaxsparse
