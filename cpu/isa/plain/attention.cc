#include "cpu/isa/plain/vec.h"

#include "cpu/tile/attention/softmax.h"

namespace jaxsparse {

const AttentionIsa& AttentionPlain() {
  static const AttentionIsa table = MakeAttentionTable();
  return table;
}

}  // namespace jaxsparse
