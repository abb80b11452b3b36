// Block-sparse attention on Hopper at a depth of 128.
#include "cuda/kernels/sparse_attention/wgmma/variant.cuh"

namespace jaxsparse {

template struct AttentionVariant<__nv_bfloat16, 128>;
template struct AttentionVariant<__half, 128>;

}  // namespace jaxsparse
