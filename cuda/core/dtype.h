// The element types of operands and results, as the handlers name them.
#pragma once

namespace jaxsparse {

enum class DType : int { kF32, kBF16, kF16 };

inline int ElementBytes(DType type) { return type == DType::kF32 ? 4 : 2; }

}  // namespace jaxsparse
