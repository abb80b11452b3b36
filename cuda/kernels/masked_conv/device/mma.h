// The rows of variants/masked_conv_mma.toml as candidates of the masked convolution that chooses on
// the device: one kernel holds them all.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/kernels/masked_conv/device/params.h"
#include "cuda/kernels/masked_conv/mma/params.h"

namespace jaxsparse {

template <typename T, bool Ragged>
struct MaskedConvMmaDevice {
  // Raises the shared-memory limit, loads the kernel, and says how many CTAs the current device
  // holds at once.
  static cudaError_t Prepare(int* ctas);

  // `p.conv` is not read. Nothing runs where the choice is not a row of the table.
  static cudaError_t Launch(const DeviceParams& p, const MmaParams& mma, int ctas,
                            cudaStream_t stream);
};

// Once per device, before the first launch and outside any capture.
cudaError_t PrepareMaskedConvMmaDevice();

// Runs the chosen candidate, if it is a row of the table. One launch, one more where weights are
// rewritten. `args.scratch` as for LaunchMaskedConvMma.
cudaError_t LaunchMaskedConvMmaDevice(const MaskedConvArgs& args, const DeviceParams& p,
                                      cudaStream_t stream);

}  // namespace jaxsparse
