// The masked convolution that chooses on the device, in bf16.
#include "cuda/kernels/masked_conv/device/wgmma.cuh"

namespace jaxsparse {

template struct MaskedConvDevice<__nv_bfloat16>;

}  // namespace jaxsparse
