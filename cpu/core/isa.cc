#include "cpu/core/isa.h"

#include <cstdlib>
#include <vector>

namespace jaxsparse {
namespace {

// What this machine runs, the best first.
std::vector<Isa> Available() {
  std::vector<Isa> found;
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    found.push_back(Isa::kAvx512);
  }
  if (avx2) found.push_back(Isa::kAvx2);
#elif defined(__aarch64__)
  found.push_back(Isa::kNeon);
#endif
  found.push_back(Isa::kPlain);
  return found;
}

struct Choice {
  Isa isa;
  std::string error;
};

Choice Choose() {
  const std::vector<Isa> available = Available();
  const char* const asked = std::getenv("JAXSPARSE_CPU_ISA");
  if (asked == nullptr || *asked == '\0') return {available.front(), ""};
  std::string names;
  for (const Isa isa : available) {
    if (std::string(asked) == NameOf(isa)) return {isa, ""};
    names += (names.empty() ? "" : ", ") + std::string(NameOf(isa));
  }
  return {available.front(),
          "JAXSPARSE_CPU_ISA=" + std::string(asked) + "; this machine takes one of " + names};
}

const Choice& Chosen() {
  static const Choice choice = Choose();
  return choice;
}

}  // namespace

const char* NameOf(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kNeon:
      return "neon";
    case Isa::kPlain:
      break;
  }
  return "plain";
}

Isa ChosenIsa() { return Chosen().isa; }

const std::string& IsaError() { return Chosen().error; }

}  // namespace jaxsparse
