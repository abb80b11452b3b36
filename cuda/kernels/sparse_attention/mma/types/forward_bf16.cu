// The forward kernels of bf16.
#include "cuda/kernels/sparse_attention/mma/forward.cuh"

namespace jaxsparse {

KernelList<ForwardKernel> ForwardKernelsBF16() {
  using T = __nv_bfloat16;
  return ListForward<ForwardConfig<T, 64, 2, 64, 128, 2>, ForwardConfig<T, 128, 2, 64, 128, 2>,
                     ForwardConfig<T, 128, 1, 64, 128, 3>, ForwardConfig<T, 256, 1, 64, 64, 2>>();
}

}  // namespace jaxsparse
