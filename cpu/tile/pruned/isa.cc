#include "cpu/tile/pruned/isa.h"

#include "cpu/core/isa.h"

namespace jaxsparse {

const PrunedIsa& PrunedIsaInUse() {
  switch (ChosenIsa()) {
#if defined(__x86_64__)
    case Isa::kAvx512:
      return PrunedAvx512();
    case Isa::kAvx2:
      return PrunedAvx2();
#elif defined(__aarch64__)
    case Isa::kNeon:
      return PrunedNeon();
#endif
    default:
      return PrunedPlain();
  }
}

}  // namespace jaxsparse
