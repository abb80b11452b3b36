// Launcher of the direct masked convolution: picks the vector widths that the channel counts allow,
// and the narrow kernel where few channels come in.
#include "cuda/kernels/masked_conv/direct/launch.h"

#include <initializer_list>

#include "cuda/core/device.h"
#include "cuda/core/launch.h"
#include "cuda/kernels/masked_conv/direct/kernel.cuh"
#include "cuda/kernels/masked_conv/direct/narrow.h"

namespace jaxsparse {
namespace {

using simt::DirectParams;
using DirectKernel = void (*)(DirectParams);

template <class T>
DirectKernel Dense(bool vector_out, bool vector_in) {
  if (vector_out) {
    return vector_in ? &simt::MaskedConvDirect<T, 4, 4> : &simt::MaskedConvDirect<T, 4, 1>;
  }
  return vector_in ? &simt::MaskedConvDirect<T, 1, 4> : &simt::MaskedConvDirect<T, 1, 1>;
}

template <class T>
DirectKernel Depthwise(bool vector) {
  return vector ? &simt::MaskedConvDepthwise<T, 16 / sizeof(T)> : &simt::MaskedConvDepthwise<T, 1>;
}

struct Choice {
  DirectKernel kernel;
  int width, pixels;  // of a thread: output channels, pixels
};

template <class T>
Choice Choose(const ConvGeometry& g) {
  const int64_t group_in = g.in_c / g.groups, group_out = g.out_c / g.groups;
  if (group_in == 1 && group_out == 1) {
    const int width = 16 / sizeof(T);
    const bool vector = g.out_c % width == 0;
    return {Depthwise<T>(vector), vector ? width : 1, simt::kDepthwisePixels};
  }
  const bool vector_out = group_out % 4 == 0;
  const bool vector_in = group_in % 4 == 0;
  return {Dense<T>(vector_out, vector_in), vector_out ? 4 : 1, simt::kDirectPixels};
}

Choice Choose(DType type, const ConvGeometry& g) {
  switch (type) {
    case DType::kF32:
      return Choose<float>(g);
    case DType::kBF16:
      return Choose<__nv_bfloat16>(g);
    case DType::kF16:
      return Choose<__half>(g);
  }
  return {nullptr, 0, 0};
}

template <class T>
cudaError_t Prepare() {
  for (const DirectKernel kernel :
       {Dense<T>(false, false), Dense<T>(false, true), Dense<T>(true, false), Dense<T>(true, true),
        Depthwise<T>(false), Depthwise<T>(true)}) {
    const cudaError_t status = PrepareKernel(kernel, 0);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t LaunchMaskedConvDirect(const MaskedConvArgs& args, cudaStream_t stream) {
  const ConvGeometry& g = args.geometry;
  if (args.tiles.capacity == 0 || g.batch * g.out_h * g.out_w * g.out_c == 0) return cudaSuccess;
  if (MaskedConvIsNarrow(args)) return LaunchMaskedConvNarrow(args, stream);
  const Choice choice = Choose(args.in_type, g);
  if (!choice.kernel) return cudaErrorInvalidValue;
  DirectParams p;
  p.pixels = simt::ActivePixels::Of(args.tiles, g);
  p.taps = simt::TapReader::Of(g, args.x_words);
  p.x = args.x;
  p.kernel = args.kernel;
  p.bias = args.bias;
  p.residual = args.residual;
  p.out = args.out;
  p.in_c = g.in_c;
  p.out_c = g.out_c;
  p.group_in = static_cast<int>(g.in_c / g.groups);
  p.group_out = static_cast<int>(g.out_c / g.groups);
  p.activation = args.activation;
  p.out_f32 = args.out_type == DType::kF32;
  const int64_t vectors = g.out_c / choice.width;
  p.lane_bits = 0;
  while (p.lane_bits < 5 && (int64_t{1} << p.lane_bits) < vectors) ++p.lane_bits;
  p.channel_blocks = CeilDiv(vectors, int64_t{1} << p.lane_bits);
  const int64_t block_pixels = (simt::kDirectThreads >> p.lane_bits) * choice.pixels;
  const int64_t blocks =
      CeilDiv(args.tiles.capacity * args.tiles.tile_h * args.tiles.tile_w, block_pixels) *
      p.channel_blocks;
  const unsigned grid = static_cast<unsigned>(std::min<int64_t>(blocks, MultiProcessors() * 16));
  choice.kernel<<<grid, simt::kDirectThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

cudaError_t PrepareMaskedConvDirect() {
  for (const cudaError_t status :
       {Prepare<float>(), Prepare<__nv_bfloat16>(), Prepare<__half>(), PrepareMaskedConvNarrow()}) {
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace jaxsparse
