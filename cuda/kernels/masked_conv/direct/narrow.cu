// Launcher of the narrow masked convolution: as many steps of K as the window needs.
#include "cuda/kernels/masked_conv/direct/narrow.h"

#include "cuda/core/device.h"
#include "cuda/core/launch.h"
#include "cuda/kernels/masked_conv/direct/narrow.cuh"
#include "cuda/kernels/masked_conv/problem.h"

namespace jaxsparse {
namespace {

using NarrowKernel = void (*)(simt::NarrowParams);

constexpr int kCtasEach = 4;  // of a multiprocessor

template <class T>
NarrowKernel Kernel(int64_t depth) {
  return depth <= 32 ? &simt::MaskedConvNarrow<T, 2>
                     : &simt::MaskedConvNarrow<T, simt::kNarrowSteps>;
}

// Elements from the first place of a window to the last, at most.
int64_t Reach(const ConvGeometry& g) {
  return (int64_t{g.kernel_h} * g.dilation_h * g.in_w + int64_t{g.kernel_w} * g.dilation_w + 1) *
         g.in_c;
}

int64_t Depth(const ConvGeometry& g) { return g.kernel_h * g.kernel_w * g.in_c; }

}  // namespace

bool MaskedConvIsNarrow(const MaskedConvArgs& args) {
  const ConvGeometry& g = args.geometry;
  return args.in_type != DType::kF32 && g.groups == 1 && g.in_c >= 1 &&
         g.in_c <= simt::kNarrowChannels && Depth(g) >= 1 && Depth(g) <= 16 * simt::kNarrowSteps &&
         Reach(g) <= INT32_MAX / (16 * simt::kNarrowSteps) && g.out_c % 8 == 0 &&
         g.out_c <= (1 << 20) && g.batch * g.out_h * g.out_w <= INT32_MAX &&
         args.x_words == nullptr && g.lhs_dilation_h == 1 && g.lhs_dilation_w == 1;
}

cudaError_t LaunchMaskedConvNarrow(const MaskedConvArgs& args, cudaStream_t stream) {
  if (!MaskedConvIsNarrow(args)) return cudaErrorInvalidValue;
  const ConvGeometry& g = args.geometry;
  if (args.tiles.capacity == 0 || g.batch * g.out_h * g.out_w * g.out_c == 0) return cudaSuccess;
  simt::NarrowParams p;
  p.conv = MakeConvParams(args);
  p.pixels = simt::ActivePixels::Of(args.tiles, g);
  p.taps = simt::TapReader::Of(g, nullptr);
  p.x = static_cast<const uint16_t*>(args.x);
  p.kernel = static_cast<const uint16_t*>(args.kernel);
  p.in_c = static_cast<int>(g.in_c);
  const int64_t slots = args.tiles.capacity * args.tiles.tile_h * args.tiles.tile_w;
  const int64_t ctas =
      std::min<int64_t>(CeilDiv(slots, simt::kNarrowPixels * 4), MultiProcessors() * kCtasEach);
  const dim3 grid(static_cast<unsigned>(ctas),
                  static_cast<unsigned>(CeilDiv(g.out_c, simt::kNarrowOutputs)));
  const NarrowKernel kernel =
      args.in_type == DType::kBF16 ? Kernel<__nv_bfloat16>(Depth(g)) : Kernel<__half>(Depth(g));
  kernel<<<grid, simt::kNarrowThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

cudaError_t PrepareMaskedConvNarrow() {
  for (const int depth : {1, 16 * simt::kNarrowSteps}) {
    for (const NarrowKernel kernel : {Kernel<__nv_bfloat16>(depth), Kernel<__half>(depth)}) {
      const cudaError_t status = PrepareKernel(kernel, 0);
      if (status != cudaSuccess) return status;
    }
  }
  return cudaSuccess;
}

}  // namespace jaxsparse
