// The masked convolution that chooses on the device, in tf32.
#include "cuda/kernels/masked_conv/device/wgmma.cuh"

namespace jaxsparse {

template struct MaskedConvDevice<TF32>;

}  // namespace jaxsparse
