// The mma.sync engine that chooses on the device, in bf16.
#include "cuda/kernels/masked_conv/device/mma.cuh"

namespace jaxsparse {

template struct MaskedConvMmaDevice<__nv_bfloat16, false>;
template struct MaskedConvMmaDevice<__nv_bfloat16, true>;

}  // namespace jaxsparse
