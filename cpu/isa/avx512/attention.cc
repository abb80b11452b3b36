#include "cpu/isa/avx512/vec.h"

#include "cpu/tile/attention/softmax.h"

namespace jaxsparse {

const AttentionIsa& AttentionAvx512() {
  static const AttentionIsa table = MakeAttentionTable();
  return table;
}

}  // namespace jaxsparse
