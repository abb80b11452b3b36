// Launcher of the kernel gradient on tiles: one class of products for each dtype and precision.
#include "cuda/kernels/masked_conv/dkernel/tiles.cuh"

#include <algorithm>

#include "cuda/core/device.h"
#include "cuda/core/launch.h"
#include "cuda/kernels/masked_conv/dkernel/launch.h"
#include "cuda/kernels/masked_conv/dkernel/reduce.h"

namespace jaxsparse {
namespace {

using simt::DkernelTilesParams;

constexpr int64_t kTargetBlocks = 2 * kHopperMultiProcessors;
constexpr int kNarrow = 64, kWide = 128, kTileRows = 128;

int64_t ColumnTile(const ConvGeometry& g) { return g.out_c <= kNarrow ? kNarrow : kWide; }

int64_t Rows(const ConvGeometry& g) { return int64_t{g.kernel_h} * g.kernel_w * g.in_c; }

template <class Mma, int kN>
struct Variant {
  using Tile = simt::DkernelTile<Mma, kN>;
  static constexpr auto kKernel = &simt::MaskedConvDkernelTiles<Mma, Tile>;

  static cudaError_t Launch(const DkernelTilesParams& p, cudaStream_t stream) {
    const int64_t blocks = int64_t{p.row_tiles} * p.column_tiles * p.splits;
    kKernel<<<static_cast<unsigned>(blocks), Mma::kThreads, Tile::kSharedBytes, stream>>>(p);
    return cudaGetLastError();
  }
  static cudaError_t Prepare() { return PrepareKernel(kKernel, Tile::kSharedBytes); }
};

template <int kN>
cudaError_t Launch(const MaskedConvDkernelArgs& args, const DkernelTilesParams& p,
                   cudaStream_t stream) {
  switch (args.in_type) {
    case DType::kBF16:
      return Variant<simt::HalfMma<__nv_bfloat16, kN>, kN>::Launch(p, stream);
    case DType::kF16:
      return Variant<simt::HalfMma<__half, kN>, kN>::Launch(p, stream);
    case DType::kF32:
      return args.highest ? Variant<simt::FloatMma<kN>, kN>::Launch(p, stream)
                          : Variant<simt::Tf32Mma<kN>, kN>::Launch(p, stream);
  }
  return cudaErrorInvalidValue;
}

template <int kN>
cudaError_t Prepare() {
  for (const cudaError_t status :
       {Variant<simt::HalfMma<__nv_bfloat16, kN>, kN>::Prepare(),
        Variant<simt::HalfMma<__half, kN>, kN>::Prepare(),
        Variant<simt::FloatMma<kN>, kN>::Prepare(), Variant<simt::Tf32Mma<kN>, kN>::Prepare()}) {
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace

int64_t DkernelTilesSplits(const ConvGeometry& g, const TileList& tiles) {
  const int64_t output_tiles =
      std::max<int64_t>(1, CeilDiv(Rows(g), kTileRows) * CeilDiv(g.out_c, ColumnTile(g)));
  const int64_t slots = tiles.capacity * tiles.tile_h * tiles.tile_w;
  const int64_t most = std::max<int64_t>(1, std::min<int64_t>(64, CeilDiv(slots, 64)));
  return std::clamp<int64_t>(kTargetBlocks / output_tiles, 1, most);
}

int64_t DkernelScratchBytes(const ConvGeometry& g, int64_t splits) {
  const int64_t elements = int64_t{g.kernel_h} * g.kernel_w * (g.in_c / g.groups) * g.out_c;
  return splits > 1 ? 4 * elements * splits : 0;
}

const char* DkernelTilesReason(const MaskedConvDkernelArgs& args) {
  const ConvGeometry& g = args.geometry;
  const int64_t unit = args.in_type == DType::kF32 ? 4 : 8;
  if (g.groups != 1) return "variant tiles takes groups == 1 only";
  if (args.grad_type != args.in_type) return "variant tiles takes gy of the dtype of x";
  if (g.in_c % unit != 0 || g.out_c % unit != 0) {
    return "variant tiles takes channels in multiples of 16 bytes";
  }
  if (!args.tiles.grid_aligned) return "the tile list must be grid-aligned";
  if (Rows(g) > (int64_t{1} << 30) ||
      CeilDiv(Rows(g), kTileRows) * CeilDiv(g.out_c, ColumnTile(g)) > (int64_t{1} << 30)) {
    return "kernel is too large";
  }
  return nullptr;
}

cudaError_t LaunchDkernelTiles(const MaskedConvDkernelArgs& args, cudaStream_t stream) {
  const ConvGeometry& g = args.geometry;
  if (DkernelTilesReason(args) != nullptr) return cudaErrorInvalidValue;
  if (Rows(g) * g.out_c == 0) return cudaSuccess;
  DkernelTilesParams p;
  p.pixels = simt::ActivePixels::Of(args.tiles, g);
  p.taps = simt::TapReader::Of(g, nullptr);
  p.x = args.x;
  p.gy = args.gy;
  p.in_c = static_cast<int>(g.in_c);
  p.out_c = static_cast<int>(g.out_c);
  p.rows = static_cast<int>(Rows(g));
  p.row_tiles = static_cast<int>(CeilDiv(p.rows, kTileRows));
  p.column_tiles = static_cast<int>(CeilDiv(g.out_c, ColumnTile(g)));
  p.splits = static_cast<int>(DkernelTilesSplits(g, args.tiles));
  p.partial = p.splits > 1 ? static_cast<float*>(args.scratch) : args.dkernel;
  const cudaError_t status =
      ColumnTile(g) == kNarrow ? Launch<kNarrow>(args, p, stream) : Launch<kWide>(args, p, stream);
  if (status != cudaSuccess || p.splits == 1) return status;
  return LaunchDkernelReduce(p.partial, p.splits, int64_t{p.rows} * p.out_c, args.dkernel, stream);
}

cudaError_t PrepareDkernelTiles() {
  for (const cudaError_t status : {Prepare<kNarrow>(), Prepare<kWide>(), PrepareDkernelReduce()}) {
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace jaxsparse
