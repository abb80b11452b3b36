// The forward kernels of float32: TF32 products, and float32 ones.
#include "cuda/kernels/sparse_attention/mma/forward.cuh"

namespace jaxsparse {

KernelList<ForwardKernel> ForwardKernelsTF32() {
  return ListForward<ForwardConfig<TF32, 128, 1, 32, 128, 2>,
                     ForwardConfig<TF32, 256, 1, 16, 64, 2>>();
}

KernelList<ForwardKernel> ForwardKernelsFloat32() {
  return ListForward<ForwardConfig<Float32, 256, 1, 16, 64, 2>>();
}

}  // namespace jaxsparse
