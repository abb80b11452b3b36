// The launcher of the stack of masked convolutions: checks, tensor maps, one cooperative launch.
#include "cuda/kernels/masked_conv/stack/launch.h"

#include <algorithm>

#include "cuda/core/dtype.cuh"
#include "cuda/kernels/masked_conv/devices.h"
#include "cuda/kernels/masked_conv/problem.h"
#include "cuda/kernels/masked_conv/stack/kernel.cuh"

namespace jaxsparse {
namespace {

using Kernel = void (*)(StackParams);
constexpr int kTypes = 2;  // bfloat16, float16
constexpr Kernel kKernels[kTypes] = {MaskedConvStackKernel<StackConfig<__nv_bfloat16>>,
                                     MaskedConvStackKernel<StackConfig<__half>>};
using Config = StackConfig<__nv_bfloat16>;  // of equal size for both

int TypeOf(DType type) { return type == DType::kBF16 ? 0 : 1; }

struct Device {
  int processors = 0;
};
ConvDevices<Device> devices;

// Layer `l` as the engine's other kernels know a convolution.
MaskedConvArgs LayerArgs(const MaskedConvStackArgs& a, int l) {
  MaskedConvArgs one = {};
  one.geometry = a.geometry;
  if (l == a.layers - 1) one.geometry.out_c = a.last_outputs;
  one.tiles = a.tiles;
  one.in_type = one.out_type = a.type;
  one.activation = a.layer[l].activation;
  one.x = l == 0 ? a.x : a.layer[l - 1].out;
  one.kernel = a.layer[l].kernel;
  one.bias = a.layer[l].bias;
  one.residual = a.layer[l].residual;
  one.out = a.layer[l].out;
  return one;
}

}  // namespace

const char* MaskedConvStackReason(const MaskedConvStackArgs& a) {
  const ConvGeometry& g = a.geometry;
  if (a.layers < 1 || a.layers > kMaxStack) return "stack: there must be 1 to 12 layers";
  if (a.type == DType::kF32) return "stack: float32";
  if (g.in_c != g.out_c || (g.in_c != 32 && g.in_c != 64)) return "stack: not 32 or 64 channels";
  if (a.last_outputs < 1 || a.last_outputs > Config::kColumns) {
    return "stack: the last layer has more than 64 outputs";
  }
  if (g.in_h != g.out_h || g.in_w != g.out_w || g.stride_h != 1 || g.stride_w != 1 ||
      g.dilation_h != 1 || g.dilation_w != 1 || g.lhs_dilation_h != 1 || g.lhs_dilation_w != 1) {
    return "stack: a layer's pixels are not those of the layer before";
  }
  if (g.kernel_h > 3 || g.kernel_w > 3 || g.kernel_h < 1 || g.kernel_w < 1) {
    return "stack: the window is larger than 3 x 3";
  }
  if (!a.tiles.grid_aligned || a.tiles.tile_h % kBlockSide != 0 ||
      a.tiles.tile_w % kBlockSide != 0) {
    return "stack: the tiles are not aligned multiples of 8 x 8";
  }
  for (int l = 0; l < a.layers; ++l) {
    if (const char* reason = ConvProblemReason(LayerArgs(a, l))) return reason;
  }
  return nullptr;
}

cudaError_t PrepareMaskedConvStack() {
  return devices.Ready([](int device, Device* found) {
    cudaError_t status =
        cudaDeviceGetAttribute(&found->processors, cudaDevAttrMultiProcessorCount, device);
    for (int t = 0; t < kTypes && status == cudaSuccess; ++t) {
      status = cudaFuncSetAttribute(kKernels[t], cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    Config::kSharedBytes);
    }
    return status;
  });
}

cudaError_t LaunchMaskedConvStack(const MaskedConvStackArgs& args, cudaStream_t stream) {
  if (MaskedConvStackReason(args) != nullptr) return cudaErrorInvalidValue;
  const int64_t blocks = args.tiles.capacity * args.tiles.tile_h * args.tiles.tile_w / kBlockRows;
  if (blocks == 0 || args.geometry.batch == 0) return cudaSuccess;
  cudaError_t status = PrepareMaskedConvStack();
  StackParams p = {};
  p.layers = args.layers;
  p.channels = static_cast<int>(args.geometry.in_c);
  p.done = args.done;
  for (int l = 0; l < args.layers && status == cudaSuccess; ++l) {
    const MaskedConvArgs one = LayerArgs(args, l);
    p.conv[l] = MakeConvParams(one);
    status = MapConvWeights(one, stream, &p.weights[l]);
    if (status == cudaSuccess) status = MapConvImage(one, p.conv[l], &p.plan, &p.image[l]);
  }
  if (status != cudaSuccess) return status;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(
      std::min<int64_t>(blocks, std::min(devices.Current().processors, kMaxConvCtas))));
  config.blockDim = dim3(Config::kThreads);
  config.dynamicSmemBytes = Config::kSharedBytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kKernels[TypeOf(args.type)], p);
}

}  // namespace jaxsparse
