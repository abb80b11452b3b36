// Launcher of the float32 masked convolution.
#include "cuda/kernels/masked_conv/direct/ffma.h"

#include <algorithm>

#include "cuda/core/device.h"
#include "cuda/core/launch.h"
#include "cuda/kernels/masked_conv/direct/ffma.cuh"

namespace jaxsparse {
namespace {

template <class Tile>
cudaError_t Launch(simt::FfmaParams p, int64_t slots, cudaStream_t stream) {
  p.column_tiles = static_cast<int>(CeilDiv(p.out_c, Tile::kN));
  const int64_t tiles = CeilDiv(slots, Tile::kM) * p.column_tiles;
  const int64_t resident = MultiProcessors() * (512 / Tile::kThreads);
  const unsigned grid = static_cast<unsigned>(std::min(tiles, resident));
  simt::MaskedConvFfma<Tile><<<grid, Tile::kThreads, Tile::kSharedBytes, stream>>>(p);
  return cudaGetLastError();
}

using Wide = simt::FfmaTile<64, 128>;
using Narrow = simt::FfmaTile<128, 64>;

}  // namespace

const char* MaskedConvFfmaReason(const MaskedConvArgs& args) {
  const ConvGeometry& g = args.geometry;
  if (args.in_type != DType::kF32 || args.out_type != DType::kF32) {
    return "variant ffma takes float32 only";
  }
  if (g.groups != 1) return "variant ffma takes groups == 1 only";
  if (g.in_c % 4 != 0 || g.out_c % 4 != 0) return "variant ffma takes channels in multiples of 4";
  if (g.in_c * g.kernel_h * g.kernel_w > (int64_t{1} << 30)) return "kernel is too large";
  return nullptr;
}

cudaError_t LaunchMaskedConvFfma(const MaskedConvArgs& args, cudaStream_t stream) {
  const ConvGeometry& g = args.geometry;
  if (MaskedConvFfmaReason(args) != nullptr) return cudaErrorInvalidValue;
  if (args.tiles.capacity == 0 || g.batch * g.out_h * g.out_w * g.out_c == 0) return cudaSuccess;
  simt::FfmaParams p;
  p.pixels = simt::ActivePixels::Of(args.tiles, g);
  p.taps = simt::TapReader::Of(g, args.x_words);
  p.x = static_cast<const float*>(args.x);
  p.kernel = static_cast<const float*>(args.kernel);
  p.bias = args.bias;
  p.residual = static_cast<const float*>(args.residual);
  p.out = static_cast<float*>(args.out);
  p.in_c = static_cast<int>(std::max<int64_t>(g.in_c, 4));  // at depth 0 nothing is loaded
  p.out_c = static_cast<int>(g.out_c);
  p.depth = static_cast<int>(g.in_c) * g.kernel_h * g.kernel_w;
  p.activation = args.activation;
  const int64_t slots = args.tiles.capacity * args.tiles.tile_h * args.tiles.tile_w;
  return g.out_c <= Narrow::kN ? Launch<Narrow>(p, slots, stream) : Launch<Wide>(p, slots, stream);
}

cudaError_t PrepareMaskedConvFfma() {
  const cudaError_t status = PrepareKernel(&simt::MaskedConvFfma<Wide>, Wide::kSharedBytes);
  if (status != cudaSuccess) return status;
  return PrepareKernel(&simt::MaskedConvFfma<Narrow>, Narrow::kSharedBytes);
}

}  // namespace jaxsparse
