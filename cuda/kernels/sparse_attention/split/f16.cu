// The split kernels of f16.
#include "cuda/kernels/sparse_attention/split/kernel.cuh"

namespace jaxsparse {

SplitKernels SplitKernelsF16() { return AllSplit<__half>(); }

}  // namespace jaxsparse
