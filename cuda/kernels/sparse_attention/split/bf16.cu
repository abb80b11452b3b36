// The split kernels of bf16.
#include "cuda/kernels/sparse_attention/split/kernel.cuh"

namespace jaxsparse {

SplitKernels SplitKernelsBF16() { return AllSplit<__nv_bfloat16>(); }

}  // namespace jaxsparse
