#include "cpu/tile/matmul/isa.h"

#include "cpu/core/isa.h"

namespace jaxsparse {

const MatmulIsa& MatmulTiles() {
  switch (ChosenIsa()) {
#if defined(__x86_64__)
    case Isa::kAvx512:
      return MatmulAvx512();
    case Isa::kAvx2:
      return MatmulAvx2();
#elif defined(__aarch64__)
    case Isa::kNeon:
      return MatmulNeon();
#endif
    default:
      return MatmulPlain();
  }
}

}  // namespace jaxsparse
