#include "cpu/tile/attention/isa.h"

namespace jaxsparse {

const AttentionIsa& AttentionTiles() {
#if defined(__x86_64__)
  static const bool avx512 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512) return AttentionAvx512();
  static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                           __builtin_cpu_supports("f16c");
  if (avx2) return AttentionAvx2();
  return AttentionPlain();
#elif defined(__aarch64__)
  return AttentionNeon();
#else
  return AttentionPlain();
#endif
}

}  // namespace jaxsparse
