// The gradients of block-sparse attention in one kernel on Hopper at a depth of 64.
#include "cuda/kernels/sparse_attention/wgmma/reduce/variant.cuh"

namespace jaxsparse {

template struct AttentionReduceVariant<__nv_bfloat16, 64>;
template struct AttentionReduceVariant<__half, 64>;

}  // namespace jaxsparse
