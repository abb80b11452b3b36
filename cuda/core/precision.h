// How products of float32 operands are rounded, as the handlers name it.
#pragma once

namespace jaxsparse {

enum class Precision : int { kDefault, kHighest };  // TF32 on the tensor cores, float32

}  // namespace jaxsparse
