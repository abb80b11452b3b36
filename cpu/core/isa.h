// The instruction set that the kernels take: the best of this machine, or what the environment
// variable JAXSPARSE_CPU_ISA names, for tests of the others.
#pragma once

#include <string>

namespace jaxsparse {

enum class Isa { kPlain, kNeon, kAvx2, kAvx512 };

// As in the environment variable and in `jaxsparse info`.
const char* NameOf(Isa isa);

// The same for the life of the process.
Isa ChosenIsa();

// What is wrong with the environment variable; empty where nothing is. `ChosenIsa` ignores it then.
const std::string& IsaError();

}  // namespace jaxsparse
