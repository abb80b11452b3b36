// The gradient kernels of float32: TF32 products, and float32 ones.
#include "cuda/kernels/sparse_attention/mma/grad.cuh"

namespace jaxsparse {

KernelList<GradKernel> GradKernelsTF32() {
  using T = TF32;
  return ListGrad<
      GradConfig<T, 128, 4, 32, 64, GradPart::kDq>, GradConfig<T, 128, 4, 32, 64, GradPart::kDkDv>,
      GradConfig<T, 256, 2, 16, 64, GradPart::kDq>, GradConfig<T, 256, 2, 16, 64, GradPart::kDk>,
      GradConfig<T, 256, 2, 16, 64, GradPart::kDv>>();
}

KernelList<GradKernel> GradKernelsFloat32() {
  using T = Float32;
  return ListGrad<GradConfig<T, 256, 2, 16, 64, GradPart::kDq>,
                  GradConfig<T, 256, 2, 16, 64, GradPart::kDk>,
                  GradConfig<T, 256, 2, 16, 64, GradPart::kDv>>();
}

}  // namespace jaxsparse
