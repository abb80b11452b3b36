// The activations that kernels fuse into their stores, as the handlers name them.
#pragma once

namespace jaxsparse {

enum class Activation : int { kNone, kRelu, kRelu6, kSilu, kGelu };

}  // namespace jaxsparse
