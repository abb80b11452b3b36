#include "cpu/isa/plain/transpose.h"

#include "cpu/tile/attention/softmax.h"

namespace jaxsparse {

const AttentionIsa& AttentionPlain() {
  static const AttentionIsa table = MakeAttentionTable();
  return table;
}

}  // namespace jaxsparse
