// The mma.sync engine that chooses on the device, in f16.
#include "cuda/kernels/masked_conv/device/mma.cuh"

namespace jaxsparse {

template struct MaskedConvMmaDevice<__half, false>;
template struct MaskedConvMmaDevice<__half, true>;

}  // namespace jaxsparse
