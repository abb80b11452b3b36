// Launches the mma.sync engine that chooses on the device.
#include "cuda/core/dtype.cuh"
#include "cuda/core/launch.h"
#include "cuda/kernels/masked_conv/device/mma.h"
#include "cuda/kernels/masked_conv/devices.h"
#include "cuda/kernels/masked_conv/mma/problem.h"

namespace jaxsparse {
namespace {

constexpr int kTypes = 3, kPixels = 2;  // element types; whole pixels, ragged ones

struct Kernel {
  cudaError_t (*prepare)(int*);
  cudaError_t (*launch)(const DeviceParams&, const MmaParams&, int, cudaStream_t);
};

template <typename T, bool Ragged>
constexpr Kernel KernelOf() {
  return {&MaskedConvMmaDevice<T, Ragged>::Prepare, &MaskedConvMmaDevice<T, Ragged>::Launch};
}
// In the order of DType.
constexpr Kernel kKernels[kTypes][kPixels] = {
    {KernelOf<TF32, false>(), KernelOf<TF32, true>()},
    {KernelOf<__nv_bfloat16, false>(), KernelOf<__nv_bfloat16, true>()},
    {KernelOf<__half, false>(), KernelOf<__half, true>()}};

struct Device {
  int ctas[kTypes][kPixels] = {};
};
ConvDevices<Device, false> devices;

}  // namespace

cudaError_t PrepareMaskedConvMmaDevice() {
  return devices.Ready([](int, Device* found) {
    cudaError_t status = PrepareMmaWeights();
    for (int i = 0; i < kTypes * kPixels && status == cudaSuccess; ++i) {
      const int t = i / kPixels, ragged = i % kPixels;
      status = kKernels[t][ragged].prepare(&found->ctas[t][ragged]);
    }
    return status;
  });
}

cudaError_t LaunchMaskedConvMmaDevice(const MaskedConvArgs& a, const DeviceParams& p,
                                      cudaStream_t stream) {
  cudaError_t status = PrepareMaskedConvMmaDevice();
  MmaParams mma = MakeMmaParams(a);
  mma.conv.zero_fill = a.zero_fill;
  if (status == cudaSuccess) status = PlaceMmaWeights(a, &mma, stream);
  if (status != cudaSuccess) return status;
  const int type = static_cast<int>(a.in_type), ragged = mma.pixel_bytes % kUnitBytes != 0;
  return kKernels[type][ragged].launch(p, mma, devices.Current().ctas[type][ragged], stream);
}

}  // namespace jaxsparse
