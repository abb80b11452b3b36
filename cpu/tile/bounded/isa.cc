#include "cpu/tile/bounded/isa.h"

#include "cpu/core/isa.h"

namespace jaxsparse {

const BoundedIsa& BoundedIsaOfMachine() {
  switch (ChosenIsa()) {
#if defined(__x86_64__)
    case Isa::kAvx512:
      return BoundedAvx512();
    case Isa::kAvx2:
      return BoundedAvx2();
#elif defined(__aarch64__)
    case Isa::kNeon:
      return BoundedNeon();
#endif
    default:
      return BoundedPlain();
  }
}

}  // namespace jaxsparse
