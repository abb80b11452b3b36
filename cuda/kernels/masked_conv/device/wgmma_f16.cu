// The masked convolution that chooses on the device, in f16.
#include "cuda/kernels/masked_conv/device/wgmma.cuh"

namespace jaxsparse {

template struct MaskedConvDevice<__half>;

}  // namespace jaxsparse
