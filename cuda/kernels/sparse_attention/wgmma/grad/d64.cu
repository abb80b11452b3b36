// The gradients of block-sparse attention on Hopper at a depth of 64.
#include "cuda/kernels/sparse_attention/wgmma/grad/variant.cuh"

namespace jaxsparse {

template struct AttentionGradVariant<__nv_bfloat16, 64>;
template struct AttentionGradVariant<__half, 64>;

}  // namespace jaxsparse
