#include "cpu/tile/attention/isa.h"

#include "cpu/core/isa.h"

namespace jaxsparse {

const AttentionIsa& AttentionTiles() {
  switch (ChosenIsa()) {
#if defined(__x86_64__)
    case Isa::kAvx512:
      return AttentionAvx512();
    case Isa::kAvx2:
      return AttentionAvx2();
#elif defined(__aarch64__)
    case Isa::kNeon:
      return AttentionNeon();
#endif
    default:
      return AttentionPlain();
  }
}

}  // namespace jaxsparse
