// Float32 weights in the order that the tensor cores read as TF32.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxsparse {

// out[g, n, k] = in[g, k, n] rounded to TF32 (to nearest), of the groups that own rows: group g
// owns starts[g] to starts[g + 1].
cudaError_t LaunchTransposeStack(const float* in, float* out, const int32_t* starts, int64_t groups,
                                 int64_t k, int64_t n, cudaStream_t stream);

}  // namespace jaxsparse
