// The launcher table of the mma.sync engine: what it takes, what it needs, and one launch.
#include "cuda/kernels/masked_conv/mma/launch.h"

#include <algorithm>
#include <iterator>

#include "cuda/core/dtype.cuh"
#include "cuda/core/launch.h"
#include "cuda/kernels/masked_conv/devices.h"
#include "cuda/kernels/masked_conv/mma/params.h"
#include "cuda/kernels/masked_conv/mma/problem.h"
#include "cuda/kernels/masked_conv/problem.h"
#include "cuda/kernels/masked_conv/zero_fill.h"

namespace jaxsparse {
namespace {

constexpr int kTypes = 3, kPixels = 2;  // element types; whole pixels, ragged ones

struct Row {
  int number, tile_m, tile_n;
  cudaError_t (*prepare[kTypes][kPixels])(int*);
  cudaError_t (*launch[kTypes][kPixels])(const MmaParams&, int, cudaStream_t);
};

#define JAXSPARSE_BOTH(F, T, ...) \
  {&MaskedConvMma<T, __VA_ARGS__, false>::F, &MaskedConvMma<T, __VA_ARGS__, true>::F}
#define JAXSPARSE_MEMBERS(F, ...)                                                       \
  {JAXSPARSE_BOTH(F, TF32, __VA_ARGS__), JAXSPARSE_BOTH(F, __nv_bfloat16, __VA_ARGS__), \
   JAXSPARSE_BOTH(F, __half, __VA_ARGS__)}
#define JAXSPARSE_VARIANT(number, name, tile_m, tile_n, stages)                \
  {number, tile_m, tile_n, JAXSPARSE_MEMBERS(Prepare, tile_m, tile_n, stages), \
   JAXSPARSE_MEMBERS(Launch, tile_m, tile_n, stages)},
constexpr Row kRows[] = {
#include "masked_conv_mma_table.inc"
};
#undef JAXSPARSE_VARIANT
#undef JAXSPARSE_MEMBERS
#undef JAXSPARSE_BOTH
constexpr int kRowCount = static_cast<int>(std::size(kRows));

struct Device {
  int ctas[kRowCount][kTypes][kPixels] = {};
};
ConvDevices<Device, false> devices;

const Row* FindRow(int64_t variant) {
  const auto* end = std::end(kRows);
  const auto* row = std::find_if(kRows, end, [&](const Row& r) { return r.number == variant; });
  return row == end ? nullptr : row;
}

}  // namespace

bool IsMaskedConvMma(int64_t variant) { return FindRow(variant) != nullptr; }

const char* MaskedConvMmaReason(const MaskedConvArgs& a, int64_t variant) {
  if (FindRow(variant) == nullptr) return "no such row in the variant table";
  if (const char* reason = ConvOperandReason(a)) return reason;
  return ConvSizeReason(a);
}

int64_t MaskedConvMmaScratchBytes(const ConvGeometry& g, DType in_type) {
  return MmaWeightBytes(g, in_type);
}

cudaError_t PrepareMaskedConvMma() {
  return devices.Ready([](int, Device* found) {
    cudaError_t status = PrepareMmaWeights();
    for (int r = 0; r < kRowCount; ++r) {
      for (int i = 0; i < kTypes * kPixels && status == cudaSuccess; ++i) {
        const int t = i / kPixels, ragged = i % kPixels;
        status = kRows[r].prepare[t][ragged](&found->ctas[r][t][ragged]);
      }
    }
    return status;
  });
}

cudaError_t LaunchMaskedConvMma(const MaskedConvArgs& args, int64_t variant, cudaStream_t stream) {
  if (MaskedConvMmaReason(args, variant) != nullptr ||
      args.scratch_bytes < MaskedConvMmaScratchBytes(args.geometry, args.in_type)) {
    return cudaErrorInvalidValue;
  }
  MaskedConvArgs a = args;
  cudaError_t status = cudaSuccess;
  if (a.zero_fill && !ListHoldsEveryTile(a.geometry, a.tiles)) {
    status = LaunchZeroFill(a, stream);
    a.zero_fill = false;
  }
  const int64_t rows = a.tiles.capacity * a.tiles.tile_h * a.tiles.tile_w;
  if (status != cudaSuccess || rows == 0 || a.geometry.out_c == 0 || a.geometry.batch == 0) {
    return status;
  }
  status = PrepareMaskedConvMma();
  MmaParams p = MakeMmaParams(a);
  p.conv.zero_fill = a.zero_fill;
  if (status == cudaSuccess) status = PlaceMmaWeights(a, &p, stream);
  if (status != cudaSuccess) return status;
  const Row& row = *FindRow(variant);
  const int type = static_cast<int>(a.in_type), ragged = p.pixel_bytes % kUnitBytes != 0;
  const int64_t tiles = CeilDiv(rows, row.tile_m) * CeilDiv(a.geometry.out_c, row.tile_n);
  const int most = devices.Current().ctas[&row - kRows][type][ragged];
  const int ctas = p.conv.zero_fill ? most : static_cast<int>(std::min<int64_t>(most, tiles));
  return row.launch[type][ragged](p, ctas, stream);
}

}  // namespace jaxsparse
