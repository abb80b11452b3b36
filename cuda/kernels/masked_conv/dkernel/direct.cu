// Launcher of the kernel gradient for every shape.
#include "cuda/kernels/masked_conv/dkernel/direct.cuh"

#include <algorithm>
#include <initializer_list>

#include "cuda/core/device.h"
#include "cuda/core/launch.h"
#include "cuda/kernels/masked_conv/dkernel/launch.h"
#include "cuda/kernels/masked_conv/dkernel/reduce.h"

namespace jaxsparse {
namespace {

using simt::DkernelDirectParams;
using DkernelKernel = void (*)(DkernelDirectParams);

constexpr int64_t kTargetBlocks = 8 * kHopperMultiProcessors;

bool IsDepthwise(const ConvGeometry& g) { return g.in_c == g.groups && g.out_c == g.groups; }

// Outputs of one thread; the vectors of a group must not reach into the next one.
int64_t Width(const ConvGeometry& g) {
  return (IsDepthwise(g) ? g.out_c : g.out_c / g.groups) % 4 == 0 ? 4 : 1;
}

int64_t ChannelSteps(const ConvGeometry& g) {
  return IsDepthwise(g) ? 1 : CeilDiv(g.in_c / g.groups, simt::kDkernelChannels);
}

int64_t Units(const ConvGeometry& g) {
  return int64_t{g.kernel_h} * g.kernel_w * ChannelSteps(g) * (g.out_c / Width(g));
}

template <class T>
DkernelKernel Pick(bool depthwise, bool vector) {
  if (depthwise) {
    return vector ? &simt::MaskedConvDkernelDirect<T, 4, true>
                  : &simt::MaskedConvDkernelDirect<T, 1, true>;
  }
  return vector ? &simt::MaskedConvDkernelDirect<T, 4, false>
                : &simt::MaskedConvDkernelDirect<T, 1, false>;
}

DkernelKernel Pick(DType type, bool depthwise, bool vector) {
  switch (type) {
    case DType::kF32:
      return Pick<float>(depthwise, vector);
    case DType::kBF16:
      return Pick<__nv_bfloat16>(depthwise, vector);
    case DType::kF16:
      return Pick<__half>(depthwise, vector);
  }
  return nullptr;
}

}  // namespace

int64_t DkernelDirectSplits(const ConvGeometry& g, const TileList& tiles) {
  const int64_t blocks = std::max<int64_t>(1, CeilDiv(Units(g), simt::kDkernelThreads));
  const int64_t slots = tiles.capacity * tiles.tile_h * tiles.tile_w;
  const int64_t most =
      std::max<int64_t>(1, std::min<int64_t>(256, CeilDiv(slots, simt::kDkernelThreads)));
  return std::clamp<int64_t>(kTargetBlocks / blocks, 1, most);
}

cudaError_t LaunchDkernelDirect(const MaskedConvDkernelArgs& args, cudaStream_t stream) {
  const ConvGeometry& g = args.geometry;
  DkernelDirectParams p;
  p.units = Units(g);
  p.elements = int64_t{g.kernel_h} * g.kernel_w * (g.in_c / g.groups) * g.out_c;
  if (p.elements == 0) return cudaSuccess;
  p.pixels = simt::ActivePixels::Of(args.tiles, g);
  p.taps = simt::TapReader::Of(g, nullptr);
  p.x = args.x;
  p.gy = args.gy;
  p.in_c = g.in_c;
  p.out_c = g.out_c;
  p.unit_blocks = CeilDiv(p.units, simt::kDkernelThreads);
  p.group_in = static_cast<int>(g.in_c / g.groups);
  p.group_out = static_cast<int>(g.out_c / g.groups);
  p.channel_steps = static_cast<int>(ChannelSteps(g));
  p.splits = static_cast<int>(DkernelDirectSplits(g, args.tiles));
  p.grad_f32 = args.grad_type == DType::kF32;
  p.partial = p.splits > 1 ? static_cast<float*>(args.scratch) : args.dkernel;
  if (p.unit_blocks * p.splits > INT32_MAX) return cudaErrorInvalidConfiguration;
  const DkernelKernel kernel = Pick(args.in_type, IsDepthwise(g), Width(g) == 4);
  kernel<<<static_cast<unsigned>(p.unit_blocks * p.splits), simt::kDkernelThreads, 0, stream>>>(p);
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess || p.splits == 1) return status;
  return LaunchDkernelReduce(p.partial, p.splits, p.elements, args.dkernel, stream);
}

cudaError_t PrepareDkernelDirect() {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const bool depthwise : {false, true}) {
      for (const bool vector : {false, true}) {
        const cudaError_t status = PrepareKernel(Pick(type, depthwise, vector), 0);
        if (status != cudaSuccess) return status;
      }
    }
  }
  return PrepareDkernelReduce();
}

}  // namespace jaxsparse
