// Block-sparse attention on Hopper at a depth of 64.
#include "cuda/kernels/sparse_attention/wgmma/variant.cuh"

namespace jaxsparse {

template struct AttentionVariant<__nv_bfloat16, 64>;
template struct AttentionVariant<__half, 64>;

}  // namespace jaxsparse
