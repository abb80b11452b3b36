// The gradients of block-sparse attention on Hopper at a depth of 128.
#include "cuda/kernels/sparse_attention/wgmma/grad/variant.cuh"

namespace jaxsparse {

template struct AttentionGradVariant<__nv_bfloat16, 128>;
template struct AttentionGradVariant<__half, 128>;

}  // namespace jaxsparse
