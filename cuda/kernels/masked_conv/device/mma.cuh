// Choice on the device among the rows of the mma.sync engine: every CTA picks the same candidate
// and runs its body.
//
// Floor:    that of the candidate that runs, and the choice (wgmma.cuh).
// Tile:     the candidate's. All bodies have the same threads; the launch asks for the shared
//           memory and the registers of the largest, so that a multiprocessor of 164 KB or
//           more holds two CTAs of any (one where there are 100 KB).
// Pipeline: pick -> the body of mma/kernel.cuh. The branch is uniform over the grid.
#pragma once

#include "cuda/kernels/masked_conv/device/mma.h"
#include "cuda/kernels/masked_conv/device/pick.cuh"
#include "cuda/kernels/masked_conv/mma/kernel.cuh"

namespace jaxsparse {

// The shared memory of the largest body.
template <typename T, bool Ragged>
constexpr int MmaDeviceSharedBytes() {
  int most = 0;
#define JAXSPARSE_VARIANT(number, name, ...)                    \
  most = MmaConfig<T, __VA_ARGS__, Ragged>::kSharedBytes > most \
             ? MmaConfig<T, __VA_ARGS__, Ragged>::kSharedBytes  \
             : most;
#include "masked_conv_mma_table.inc"
#undef JAXSPARSE_VARIANT
  return most;
}

template <typename T, bool Ragged>
__global__ void __launch_bounds__(kMmaThreads, 2)
    MaskedConvMmaDeviceKernel(const __grid_constant__ DeviceParams p,
                              const __grid_constant__ MmaParams mma) {
  extern __shared__ __align__(128) uint8_t raw[];
  const Pick pick(p);
  const RowList list = p.rows[pick.source()];  // held: slow to read where it is
  switch (pick.variant()) {
#define JAXSPARSE_VARIANT(number, name, ...)                                        \
  case number:                                                                      \
    RunMaskedConvMma<OneOfMany<MmaConfig<T, __VA_ARGS__, Ragged>>>(mma, list, raw); \
    break;
#include "masked_conv_mma_table.inc"
#undef JAXSPARSE_VARIANT
  }
}

template <typename T, bool Ragged>
cudaError_t MaskedConvMmaDevice<T, Ragged>::Prepare(int* ctas) {
  return PrepareMmaKernel(&MaskedConvMmaDeviceKernel<T, Ragged>, MmaDeviceSharedBytes<T, Ragged>(),
                          ctas);
}

template <typename T, bool Ragged>
cudaError_t MaskedConvMmaDevice<T, Ragged>::Launch(const DeviceParams& p, const MmaParams& mma,
                                                   int ctas, cudaStream_t stream) {
  MaskedConvMmaDeviceKernel<T, Ragged>
      <<<ctas, kMmaThreads, MmaDeviceSharedBytes<T, Ragged>(), stream>>>(p, mma);
  return cudaGetLastError();
}

}  // namespace jaxsparse
