#include "cpu/tile/conv/isa.h"

#include "cpu/core/isa.h"

namespace jaxsparse {

const ConvIsa& MaskedConvIsa() {
  switch (ChosenIsa()) {
#if defined(__x86_64__)
    case Isa::kAvx512:
      return MaskedConvAvx512();
    case Isa::kAvx2:
      return MaskedConvAvx2();
#elif defined(__aarch64__)
    case Isa::kNeon:
      return MaskedConvNeon();
#endif
    default:
      return MaskedConvPlain();
  }
}

}  // namespace jaxsparse
