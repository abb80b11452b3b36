// The launcher table of the Hopper engine: what it takes, what it needs, and one launch.
#include "cuda/kernels/masked_conv/wgmma/launch.h"

#include <algorithm>
#include <iterator>

#include "cuda/core/dtype.cuh"
#include "cuda/kernels/masked_conv/devices.h"
#include "cuda/kernels/masked_conv/problem.h"
#include "cuda/kernels/masked_conv/wgmma/variant.h"
#include "cuda/kernels/masked_conv/workspace.h"
#include "cuda/kernels/masked_conv/zero_fill.h"
#include "cuda/tile/conv/partial_tile.cuh"

namespace jaxsparse {
namespace {

constexpr int kTypes = 3;

struct Row {
  int number, tile_m, tile_n, ctas, split_k;
  bool stream_k, box;
  cudaError_t (*prepare[kTypes])(int*);
  cudaError_t (*launch[kTypes])(const ConvParams&, const ConvMaps&, int, cudaStream_t);
};

#define JAXSPARSE_MEMBERS(F, ...)                                                               \
  {&MaskedConvVariant<TF32, __VA_ARGS__>::F, &MaskedConvVariant<__nv_bfloat16, __VA_ARGS__>::F, \
   &MaskedConvVariant<__half, __VA_ARGS__>::F}
#define JAXSPARSE_VARIANT(number, name, tile_m, tile_n, stages, cluster, split_k, stream_k, box) \
  {number,                                                                                       \
   tile_m,                                                                                       \
   tile_n,                                                                                       \
   cluster * split_k,                                                                            \
   split_k,                                                                                      \
   stream_k != 0,                                                                                \
   box != 0,                                                                                     \
   JAXSPARSE_MEMBERS(Prepare, tile_m, tile_n, stages, cluster, split_k, stream_k, box),          \
   JAXSPARSE_MEMBERS(Launch, tile_m, tile_n, stages, cluster, split_k, stream_k, box)},
constexpr Row kRows[] = {
#include "masked_conv_table.inc"
};
#undef JAXSPARSE_VARIANT
#undef JAXSPARSE_MEMBERS
constexpr int kRowCount = static_cast<int>(std::size(kRows));

constexpr bool NumbersCountUp() {
  for (int r = 0; r < kRowCount; ++r) {
    if (kRows[r].number != kRows[0].number + r) return false;
  }
  return true;
}
static_assert(NumbersCountUp(), "tensor-core rows must be numbered in the order of the table");

// The workspace: transposed weights, then a flag per consumer warp of each CTA, then a partial tile
// per CTA.
constexpr int kMaxCtas = kMaxConvCtas;
constexpr int64_t kFlagBytes = kMaxCtas * kConsumerWarps * sizeof(uint64_t);

int Bytes(DType type) { return type == DType::kF32 ? 4 : 2; }

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t PartBytes(const Row& row) { return int64_t{4} * kMaxCtas * row.tile_m * row.tile_n; }

struct Device {
  int clusters[kRowCount][kTypes] = {};
};
ConvDevices<Device> devices;

const Row* FindRow(int row) { return row >= 0 && row < kRowCount ? &kRows[row] : nullptr; }

// What rows that load boxes cannot do.
const char* BoxReason(const MaskedConvArgs& a) {
  constexpr int kMostSteps = 8;  // of a tensor map, from pixel to pixel
  const ConvGeometry& g = a.geometry;
  if (a.x_words != nullptr) return "boxes: the input is masked";
  if (g.lhs_dilation_h != 1 || g.lhs_dilation_w != 1) return "boxes: the input is dilated";
  if (a.tiles.tile_h % kBlockSide != 0 || a.tiles.tile_w % kBlockSide != 0) {
    return "boxes: a side of the tiles is not a multiple of 8";
  }
  const int64_t pixel = g.in_c * Bytes(a.in_type);
  if (pixel % kBoxRowBytes != 0 && (pixel != kNarrowRowBytes || a.in_type == DType::kF32)) {
    return "boxes: an input pixel is not a multiple of 128 bytes, nor 64 bytes of a 16-bit type";
  }
  if (g.stride_h > kMostSteps || g.stride_w > kMostSteps) return "boxes: a stride is more than 8";
  if (g.in_h == 0 || g.in_w == 0) return "boxes: the input is empty";
  return nullptr;
}

}  // namespace

const char* MaskedConvWgmmaReason(const MaskedConvArgs& a, int variant_row) {
  const Row* row = FindRow(variant_row);
  if (row == nullptr) return "no such row in the variant table";
  if (const char* reason = ConvProblemReason(a)) return reason;
  if (ConvKSteps(a.geometry, a.in_type) < row->split_k) return "fewer steps of K than parts";
  return row->box ? BoxReason(a) : nullptr;
}

int64_t MaskedConvWgmmaScratchBytes(const ConvGeometry& g, DType in_type, int variant_row) {
  const Row* row = FindRow(variant_row);
  if (row == nullptr) return 0;
  return ConvWeightBytes(g, in_type) + (row->stream_k ? kFlagBytes + PartBytes(*row) : 0);
}

cudaError_t PrepareMaskedConvWgmma() {
  return devices.Ready([](int, Device* found) {
    cudaError_t status = PrepareConvWorkspace();
    for (int r = 0; r < kRowCount; ++r) {
      for (int t = 0; t < kTypes && status == cudaSuccess; ++t) {
        status = kRows[r].prepare[t](&found->clusters[r][t]);
      }
    }
    return status;
  });
}

cudaError_t LaunchMaskedConvWgmma(const MaskedConvArgs& args, int variant_row,
                                  cudaStream_t stream) {
  if (MaskedConvWgmmaReason(args, variant_row) != nullptr) return cudaErrorInvalidValue;
  MaskedConvArgs a = args;
  if (a.zero_fill && !ListHoldsEveryTile(a.geometry, a.tiles)) {
    const cudaError_t filled = LaunchZeroFill(a, stream);
    if (filled != cudaSuccess) return filled;
    a.zero_fill = false;
  }
  if (a.scratch_bytes < MaskedConvWgmmaScratchBytes(a.geometry, a.in_type, variant_row)) {
    return cudaErrorInvalidValue;
  }
  const int64_t rows = a.tiles.capacity * a.tiles.tile_h * a.tiles.tile_w;
  if (rows == 0 || a.geometry.out_c == 0 || a.geometry.batch == 0) return cudaSuccess;
  cudaError_t status = PrepareMaskedConvWgmma();
  ConvMaps maps;
  if (status == cudaSuccess) status = MapConvWeights(a, stream, &maps.weights);
  const Row& row = *FindRow(variant_row);
  ConvParams p = MakeConvParams(a);
  p.zero_fill = a.zero_fill;
  if (status == cudaSuccess && row.box) {
    status = MapConvImage(a, p, &maps.plan, &maps.image);
  }
  if (status != cudaSuccess) return status;
  if (row.stream_k) {
    char* flags = static_cast<char*>(a.scratch) + ConvWeightBytes(a.geometry, a.in_type);
    p.flags = reinterpret_cast<uint64_t*>(flags);
    p.parts = reinterpret_cast<float*>(flags + kFlagBytes);
    p.mark = NextMark();
  }
  const int type = static_cast<int>(a.in_type);
  const int64_t m_tiles = CeilDivide(rows, row.tile_m);
  const int64_t tiles =
      CeilDivide(m_tiles, row.ctas / row.split_k) * CeilDivide(a.geometry.out_c, row.tile_n);
  const int most = std::min(devices.Current().clusters[&row - kRows][type], kMaxCtas / row.ctas);
  const bool all = row.stream_k || p.zero_fill;
  const int clusters = all ? most : static_cast<int>(std::min<int64_t>(most, tiles));
  return row.launch[type](p, maps, clusters, stream);
}

}  // namespace jaxsparse
