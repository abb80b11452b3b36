#include "cpu/tile/ffn/isa.h"

#include "cpu/core/isa.h"

namespace jaxsparse {

const FfnIsa& FfnIsaInUse() {
  switch (ChosenIsa()) {
#if defined(__x86_64__)
    case Isa::kAvx512:
      return FfnAvx512();
    case Isa::kAvx2:
      return FfnAvx2();
#elif defined(__aarch64__)
    case Isa::kNeon:
      return FfnNeon();
#endif
    default:
      return FfnPlain();
  }
}

}  // namespace jaxsparse
