#include "cpu/isa/neon/vec.h"

#include "cpu/tile/attention/softmax.h"

namespace jaxsparse {

const AttentionIsa& AttentionNeon() {
  static const AttentionIsa table = MakeAttentionTable();
  return table;
}

}  // namespace jaxsparse
