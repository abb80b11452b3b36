// The launcher table of the Hopper engine: what it takes, what it needs, and one launch.
#include "cuda/kernels/masked_conv_wgmma.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <mutex>

#include "cuda/core/dtype.cuh"
#include "cuda/core/tensor_map.h"
#include "cuda/kernels/masked_conv_variant.h"
#include "cuda/kernels/masked_conv_workspace.h"
#include "cuda/tile/partial_tile.cuh"

namespace jaxsparse {
namespace {

constexpr int kTypes = 3, kMaxDevices = 64;

struct Row {
  int number, tile_m, tile_n, ctas, split_k;
  bool stream_k;
  cudaError_t (*prepare[kTypes])(int*);
  cudaError_t (*launch[kTypes])(const ConvParams&, const CUtensorMap&, int, cudaStream_t);
};

#define JAXSPARSE_MEMBERS(F, ...)                                                               \
  {&MaskedConvVariant<TF32, __VA_ARGS__>::F, &MaskedConvVariant<__nv_bfloat16, __VA_ARGS__>::F, \
   &MaskedConvVariant<__half, __VA_ARGS__>::F}
#define JAXSPARSE_VARIANT(number, name, tile_m, tile_n, stages, cluster, split_k, stream_k) \
  {number,                                                                                  \
   tile_m,                                                                                  \
   tile_n,                                                                                  \
   cluster * split_k,                                                                       \
   split_k,                                                                                 \
   stream_k != 0,                                                                           \
   JAXSPARSE_MEMBERS(Prepare, tile_m, tile_n, stages, cluster, split_k, stream_k),          \
   JAXSPARSE_MEMBERS(Launch, tile_m, tile_n, stages, cluster, split_k, stream_k)},
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
constexpr int kMaxCtas = 144;
constexpr int64_t kFlagBytes = kMaxCtas * kConsumerWarps * sizeof(uint32_t);

int64_t WeightBytes(const ConvGeometry& g, DType type) {
  if (type != DType::kF32) return 0;
  return (4 * g.kernel_h * g.kernel_w * g.in_c * g.out_c + 255) / 256 * 256;
}

int64_t PartBytes(const Row& row) { return int64_t{4} * kMaxCtas * row.tile_m * row.tile_n; }

// What Prepare found out about each device.
struct Device {
  std::once_flag once;
  cudaError_t status = cudaErrorNotReady;
  int clusters[kRowCount][kTypes] = {};
};
Device devices[kMaxDevices];

const Row* FindRow(int row) { return row >= 0 && row < kRowCount ? &kRows[row] : nullptr; }

int Bytes(DType type) { return type == DType::kF32 ? 4 : 2; }

bool IsHopper() {
  int device = 0, major = 0, minor = 0;
  return cudaGetDevice(&device) == cudaSuccess && device < kMaxDevices &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
         major == 9 && minor == 0;
}

bool Aligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t KSteps(const ConvGeometry& g, DType type) {
  return CeilDivide(g.kernel_h * g.kernel_w * g.in_c * Bytes(type), kStepUnits * kUnitBytes);
}

const char* ShapeReason(const MaskedConvArgs& a) {
  const ConvGeometry& g = a.geometry;
  const int64_t kMax = std::numeric_limits<int32_t>::max();
  const int64_t pixel_units = g.in_c * Bytes(a.in_type) / kUnitBytes;
  if (g.groups != 1) return "groups is not 1";
  if (g.in_c < 1 || g.in_c * Bytes(a.in_type) % kUnitBytes != 0) {
    return "an input pixel is not a multiple of 16 bytes";
  }
  if (g.out_c * Bytes(a.in_type) % kUnitBytes != 0) {
    return "a row of weights is not a multiple of 16 bytes";
  }
  if (g.kernel_h * g.kernel_w > kMaxTaps || g.kernel_h > 32 || g.kernel_w > 32) {
    return "the kernel has more than 64 taps or is wider than 32";
  }
  if (g.batch * g.out_h * g.out_w > kMax ||
      a.tiles.capacity * a.tiles.tile_h * a.tiles.tile_w > kMax) {
    return "more than 2^31 output pixels";
  }
  if (g.batch * g.in_h * g.in_w > kMax || g.batch * g.in_h * g.in_w * pixel_units > int64_t{1}
                                                                                        << 32) {
    return "the input passes 64 GiB or 2^31 pixels";
  }
  const int64_t reach =
      std::max(g.out_h * g.stride_h + int64_t{g.kernel_h} * g.dilation_h + std::abs(g.pad_top),
               g.out_w * g.stride_w + int64_t{g.kernel_w} * g.dilation_w + std::abs(g.pad_left));
  if (reach > kMax || g.in_h * g.lhs_dilation_h > kMax || g.in_w * g.lhs_dilation_w > kMax) {
    return "an image side passes 2^31 pixels";
  }
  return nullptr;
}

ConvParams MakeParams(const MaskedConvArgs& a, const Row& row) {
  const ConvGeometry& g = a.geometry;
  ConvParams p = {};
  p.batch = static_cast<int>(g.batch);
  p.in_h = static_cast<int>(g.in_h);
  p.in_w = static_cast<int>(g.in_w);
  p.out_h = static_cast<int>(g.out_h);
  p.out_w = static_cast<int>(g.out_w);
  p.out_c = static_cast<int>(g.out_c);
  p.kernel_h = g.kernel_h;
  p.kernel_w = g.kernel_w;
  p.stride_h = g.stride_h;
  p.stride_w = g.stride_w;
  p.pad_top = g.pad_top;
  p.pad_left = g.pad_left;
  p.dilation_h = g.dilation_h;
  p.dilation_w = g.dilation_w;
  p.lhs_dilation_h = g.lhs_dilation_h;
  p.lhs_dilation_w = g.lhs_dilation_w;
  p.pixel_units = static_cast<int>(g.in_c * Bytes(a.in_type) / kUnitBytes);
  p.k_steps = static_cast<int>(KSteps(g, a.in_type));
  p.taps_first = p.pixel_units % kStepUnits == 0;
  p.n_tiles = static_cast<int>(CeilDivide(g.out_c, row.tile_n));
  p.capacity = static_cast<int>(a.tiles.capacity);
  p.tile_h = a.tiles.tile_h;
  p.tile_w = a.tiles.tile_w;
  p.grid_aligned = a.tiles.grid_aligned;
  p.out_f32 = a.out_type == DType::kF32;
  p.ids = a.tiles.ids;
  p.count = a.tiles.count;
  p.words = a.tiles.words;
  p.x_words = a.x_words;
  p.x = a.x;
  p.bias = a.bias;
  p.out = a.out;
  const float kInfinity = std::numeric_limits<float>::infinity();
  const bool clamped = a.activation == Activation::kRelu || a.activation == Activation::kRelu6;
  p.low = clamped ? 0.0f : -kInfinity;
  p.high = a.activation == Activation::kRelu6 ? 6.0f : kInfinity;
  p.gated = a.activation == Activation::kSilu || a.activation == Activation::kGelu;
  p.gate_a = a.activation == Activation::kSilu ? 1.0f : 1.5957691216f;
  p.gate_b = a.activation == Activation::kSilu ? 0.0f : 0.0713548163f;
  return p;
}

// The weights' tensor map; float32 ones are transposed into the scratch first.
cudaError_t MapWeights(const MaskedConvArgs& a, cudaStream_t stream, CUtensorMap* map) {
  const ConvGeometry& g = a.geometry;
  const int64_t k = g.kernel_h * g.kernel_w * g.in_c;
  if (a.in_type != DType::kF32) {
    const auto type = a.in_type == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    return EncodeMatrixMap(map, type, 2, a.kernel, k, g.out_c, 64, 64);
  }
  float* transposed = static_cast<float*>(a.scratch);
  const cudaError_t status =
      LaunchTransposeWeights(static_cast<const float*>(a.kernel), transposed, static_cast<int>(k),
                             static_cast<int>(g.out_c), stream);
  if (status != cudaSuccess) return status;
  return EncodeMatrixMap(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, transposed, g.out_c, k, 64, 32);
}

}  // namespace

const char* MaskedConvWgmmaReason(const MaskedConvArgs& a, int variant_row) {
  const Row* row = FindRow(variant_row);
  if (row == nullptr) return "no such row in the variant table";
  if (!IsHopper()) return "the device is not of compute capability 9.0";
  if (a.highest && a.in_type == DType::kF32) return "float32 products are asked for, not TF32";
  if (a.out_type != a.in_type && a.out_type != DType::kF32) {
    return "the result is neither of the input's type nor float32";
  }
  if (!Aligned16(a.x) || !Aligned16(a.kernel) || !Aligned16(a.out) || !Aligned16(a.bias)) {
    return "an operand is not aligned to 16 bytes";
  }
  if (const char* reason = ShapeReason(a)) return reason;
  if (KSteps(a.geometry, a.in_type) < row->split_k) return "fewer steps of K than parts";
  return nullptr;
}

int64_t MaskedConvWgmmaScratchBytes(const ConvGeometry& g, DType in_type, int variant_row) {
  const Row* row = FindRow(variant_row);
  if (row == nullptr) return 0;
  return WeightBytes(g, in_type) + (row->stream_k ? kFlagBytes + PartBytes(*row) : 0);
}

cudaError_t PrepareMaskedConvWgmma() {
  int index = 0;
  const cudaError_t status = cudaGetDevice(&index);
  if (status != cudaSuccess) return status;
  if (!IsHopper()) return cudaSuccess;
  Device& device = devices[index];
  std::call_once(device.once, [&] {
    device.status = cudaSuccess;
    for (int r = 0; r < kRowCount; ++r) {
      for (int t = 0; t < kTypes && device.status == cudaSuccess; ++t) {
        device.status = kRows[r].prepare[t](&device.clusters[r][t]);
      }
    }
  });
  return device.status;
}

cudaError_t LaunchMaskedConvWgmma(const MaskedConvArgs& a, int variant_row, cudaStream_t stream) {
  if (MaskedConvWgmmaReason(a, variant_row) != nullptr) return cudaErrorInvalidValue;
  if (a.scratch_bytes < MaskedConvWgmmaScratchBytes(a.geometry, a.in_type, variant_row)) {
    return cudaErrorInvalidValue;
  }
  const int64_t rows = a.tiles.capacity * a.tiles.tile_h * a.tiles.tile_w;
  if (rows == 0 || a.geometry.out_c == 0 || a.geometry.batch == 0) return cudaSuccess;
  int index = 0;
  cudaError_t status = PrepareMaskedConvWgmma();
  if (status == cudaSuccess) status = cudaGetDevice(&index);
  CUtensorMap map;
  if (status == cudaSuccess) status = MapWeights(a, stream, &map);
  if (status != cudaSuccess) return status;
  const Row& row = *FindRow(variant_row);
  ConvParams p = MakeParams(a, row);
  if (row.stream_k) {
    char* flags = static_cast<char*>(a.scratch) + WeightBytes(a.geometry, a.in_type);
    p.flags = reinterpret_cast<uint32_t*>(flags);
    p.parts = reinterpret_cast<float*>(flags + kFlagBytes);
    status = LaunchClearFlags(p.flags, kMaxCtas * kConsumerWarps, stream);
    if (status != cudaSuccess) return status;
  }
  const int type = static_cast<int>(a.in_type);
  const int64_t m_tiles = CeilDivide(rows, row.tile_m);
  const int64_t tiles = CeilDivide(m_tiles, row.ctas / row.split_k) * p.n_tiles;
  const int most = std::min(devices[index].clusters[&row - kRows][type], kMaxCtas / row.ctas);
  const int clusters = row.stream_k ? most : static_cast<int>(std::min<int64_t>(most, tiles));
  return row.launch[type](p, map, clusters, stream);
}

}  // namespace jaxsparse
