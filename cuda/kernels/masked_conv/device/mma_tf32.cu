// The mma.sync engine that chooses on the device, in tf32.
#include "cuda/kernels/masked_conv/device/mma.cuh"

namespace jaxsparse {

template struct MaskedConvMmaDevice<TF32, false>;
template struct MaskedConvMmaDevice<TF32, true>;

}  // namespace jaxsparse
