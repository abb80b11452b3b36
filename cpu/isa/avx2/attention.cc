#include "cpu/isa/avx2/vec.h"

#include "cpu/tile/attention/softmax.h"

namespace jaxsparse {

const AttentionIsa& AttentionAvx2() {
  static const AttentionIsa table = MakeAttentionTable();
  return table;
}

}  // namespace jaxsparse
