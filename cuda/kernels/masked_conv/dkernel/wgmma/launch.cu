// The launcher table of the kernel gradient on Hopper's tensor cores.
#include "cuda/kernels/masked_conv/dkernel/wgmma/launch.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "cuda/core/device.h"
#include "cuda/core/launch.h"
#include "cuda/kernels/masked_conv/dkernel/wgmma/depth.h"
#include "cuda/kernels/masked_conv/dkernel/wgmma/variant.h"
#include "cuda/kernels/masked_conv/problem.h"

namespace jaxsparse {
namespace {

constexpr double kPassTime = 0.01;  // of a pass over the pixels, as a share of the whole

struct Row {
  int number, tile_m, tile_n, groups;
  cudaError_t (*prepare[2])();
  cudaError_t (*launch[2])(const DkernelParams&, cudaStream_t);
};

#define JAXSPARSE_MEMBERS(F, ...) \
  {&DkernelVariant<__nv_bfloat16, __VA_ARGS__>::F, &DkernelVariant<__half, __VA_ARGS__>::F}
#define JAXSPARSE_VARIANT(number, name, tile_m, tile_n, stages, groups) \
  {number,                                                              \
   tile_m,                                                              \
   tile_n,                                                              \
   groups,                                                              \
   JAXSPARSE_MEMBERS(Prepare, tile_m, tile_n, stages, groups),          \
   JAXSPARSE_MEMBERS(Launch, tile_m, tile_n, stages, groups)},
constexpr Row kRows[] = {
#include "masked_conv_dkernel_table.inc"
};
#undef JAXSPARSE_VARIANT
#undef JAXSPARSE_MEMBERS
constexpr int kRowCount = static_cast<int>(std::size(kRows));

constexpr bool NumbersCountUp() {
  for (int r = 0; r < kRowCount; ++r) {
    if (kRows[r].number != kFirstDkernelRow + r) return false;
  }
  return true;
}
static_assert(NumbersCountUp(), "tensor-core rows must be numbered in the order of the table");

const Row* FindRow(int64_t row) { return row >= 0 && row < kRowCount ? &kRows[row] : nullptr; }

int64_t DkernelRows(const ConvGeometry& g) { return int64_t{g.kernel_h} * g.kernel_w * g.in_c; }

int64_t Tiles(const ConvGeometry& g, const Row& row) {
  return CeilDiv(DkernelRows(g), row.tile_m) * CeilDiv(g.out_c, row.tile_n);
}

int64_t PixelBytes(const TileList& tiles) {
  const int64_t slots = tiles.capacity * tiles.tile_h * tiles.tile_w;
  return 16 * kDkernelStepPixels * CeilDiv(slots, kDkernelStepPixels);
}

// How many CTAs share `tiles` tiles on `processors` multiprocessors. Workers that stand at the same
// step of different tiles read the same pixels at the same time, so those come from DRAM once; that
// groups tiles into tiles / gcd(workers, tiles) passes over the pixels.
int64_t ChooseWorkers(int64_t tiles, int64_t processors) {
  int64_t best = processors;
  double least = 0.0;
  for (int64_t w = processors; w >= 1 && w * 5 >= processors * 4; --w) {
    const double passes = static_cast<double>(tiles) / std::gcd(w, tiles);
    const double time = (1.0 + kPassTime * (passes - 1.0)) / static_cast<double>(w);
    if (w == processors || time < least) best = w, least = time;
  }
  return best;
}

MaskedConvArgs AsConv(const MaskedConvDkernelArgs& a) {
  MaskedConvArgs conv = {};
  conv.geometry = a.geometry;
  conv.tiles = a.tiles;
  conv.in_type = a.in_type;
  conv.out_type = a.grad_type;
  conv.highest = a.highest;
  conv.x = a.x;
  conv.kernel = a.gy;  // the other operand, for its alignment
  conv.out = a.dkernel;
  return conv;
}

}  // namespace

const char* DkernelWgmmaReason(const MaskedConvDkernelArgs& a, int64_t row) {
  if (FindRow(row) == nullptr) return "no such row in the variant table";
  if (a.in_type == DType::kF32) return "tensor cores read float32 with K contiguous only";
  if (a.grad_type != a.in_type) return "gy is not of the dtype of x";
  if (!a.tiles.grid_aligned) return "the tile list must be grid-aligned";
  if (DkernelRows(a.geometry) * a.geometry.out_c > int64_t{1} << 36)
    return "the kernel is too large";
  return ConvProblemReason(AsConv(a));
}

int64_t DkernelWgmmaScratchBytes(const ConvGeometry& g, const TileList& tiles, int64_t row) {
  const Row* found = FindRow(row);
  if (found == nullptr) return 0;
  const int64_t parts = kMaxConvCtas + Tiles(g, *found);
  return PixelBytes(tiles) + 4 * parts * found->tile_m * found->tile_n;
}

cudaError_t PrepareDkernelWgmma() {
  if (!OnHopper()) return cudaSuccess;
  cudaError_t status = PrepareDkernelDepth();
  for (const Row& row : kRows) {
    for (int t = 0; t < 2 && status == cudaSuccess; ++t) status = row.prepare[t]();
  }
  return status;
}

cudaError_t LaunchDkernelWgmma(const MaskedConvDkernelArgs& a, int64_t number,
                               cudaStream_t stream) {
  if (DkernelWgmmaReason(a, number) != nullptr ||
      a.scratch_bytes < DkernelWgmmaScratchBytes(a.geometry, a.tiles, number)) {
    return cudaErrorInvalidValue;
  }
  const ConvGeometry& g = a.geometry;
  if (DkernelRows(g) * g.out_c == 0) return cudaSuccess;
  const Row& row = *FindRow(number);
  DkernelParams p = {};
  p.conv = MakeConvParams(AsConv(a));
  auto* const pixels = static_cast<DepthPixel*>(a.scratch);
  p.pixels = pixels;
  p.gy = a.gy;
  p.gy_units = static_cast<int>(g.out_c * 2 / kUnitBytes);
  p.dkernel = a.dkernel;
  p.parts = reinterpret_cast<float*>(static_cast<char*>(a.scratch) + PixelBytes(a.tiles));
  p.rows = static_cast<int>(DkernelRows(g));
  p.tile_m = row.tile_m;
  p.tile_n = row.tile_n;
  p.groups = row.groups;
  p.m_tiles = static_cast<int>(CeilDiv(p.rows, row.tile_m));
  p.n_tiles = static_cast<int>(CeilDiv(g.out_c, row.tile_n));
  const int64_t processors = std::min<int64_t>(MultiProcessors(), kMaxConvCtas);
  p.workers = static_cast<int>(ChooseWorkers(Tiles(g, row), processors));
  const int type = a.in_type == DType::kBF16 ? 0 : 1;
  cudaError_t status = LaunchDkernelPixels(p, pixels, stream);
  if (status == cudaSuccess) status = row.launch[type](p, stream);
  return status == cudaSuccess ? LaunchDkernelSum(p, stream) : status;
}

}  // namespace jaxsparse
