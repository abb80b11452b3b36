// The gradient kernels of f16.
#include "cuda/kernels/sparse_attention/mma/grad.cuh"

namespace jaxsparse {

KernelList<GradKernel> GradKernelsF16() {
  using T = __half;
  return ListGrad<
      GradConfig<T, 128, 4, 64, 64, GradPart::kDq>, GradConfig<T, 128, 4, 64, 64, GradPart::kDkDv>,
      GradConfig<T, 256, 4, 32, 64, GradPart::kDq>, GradConfig<T, 256, 4, 32, 64, GradPart::kDk>,
      GradConfig<T, 256, 4, 32, 64, GradPart::kDv>>();
}

}  // namespace jaxsparse
