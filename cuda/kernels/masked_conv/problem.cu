// A masked convolution in the terms of the Hopper engine: what the engine takes, its parameters and
// the tensor map of the weights.
#include "cuda/kernels/masked_conv/problem.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "cuda/core/device.h"
#include "cuda/core/tensor_map.h"
#include "cuda/kernels/masked_conv/workspace.h"

namespace jaxsparse {
namespace {

int Bytes(DType type) { return type == DType::kF32 ? 4 : 2; }

bool Aligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Whether K runs over the taps of one stage's channels, and then over the channels: where a pixel
// is whole stages, and where filling up the last stage of every tap adds at most a quarter to the
// steps. In memory order stages straddle taps and lines: a step of 392 channels then takes 1.3
// times (tiles of 192 and 256 columns) to 1.7 times (128 columns) as long as one of 384.
bool TapsFirst(int64_t taps, int64_t units) {
  if (units % kStepUnits == 0) return true;
  const int64_t filled = taps * CeilDivide(units, kStepUnits);
  return units > kStepUnits && 4 * filled <= 5 * CeilDivide(taps * units, kStepUnits);
}

// What the copies of 16 bytes do not reach.
const char* ChannelReason(const MaskedConvArgs& a) {
  const ConvGeometry& g = a.geometry;
  const int64_t pixel_units = g.in_c * Bytes(a.in_type) / kUnitBytes;
  if (g.in_c < 1 || g.in_c * Bytes(a.in_type) % kUnitBytes != 0) {
    return "an input pixel is not a multiple of 16 bytes";
  }
  if (g.out_c * Bytes(a.in_type) % kUnitBytes != 0) {
    return "a row of weights is not a multiple of 16 bytes";
  }
  if (g.batch * g.in_h * g.in_w * pixel_units > int64_t{1} << 32) return "the input passes 64 GiB";
  return nullptr;
}

}  // namespace

const char* ConvOperandReason(const MaskedConvArgs& a) {
  if (a.highest && a.in_type == DType::kF32) return "float32 products are asked for, not TF32";
  if (a.out_type != a.in_type && a.out_type != DType::kF32) {
    return "the result is neither of the input's type nor float32";
  }
  if (!Aligned16(a.x) || !Aligned16(a.kernel) || !Aligned16(a.out) || !Aligned16(a.bias) ||
      !Aligned16(a.residual)) {
    return "an operand is not aligned to 16 bytes";
  }
  return nullptr;
}

const char* ConvSizeReason(const MaskedConvArgs& a) {
  const ConvGeometry& g = a.geometry;
  const int64_t kMax = std::numeric_limits<int32_t>::max();
  const int64_t kMostRows = kMax - 1024;  // a compute tile past the last row is numbered too
  const int64_t kMostInputs = int64_t{1} << 27, kMostOutputs = int64_t{1} << 20;
  if (g.groups != 1) return "groups is not 1";
  if (g.in_c < 1) return "the input has no channels";
  if (g.kernel_h * g.kernel_w > kMaxTaps || g.kernel_h > 32 || g.kernel_w > 32) {
    return "the kernel has more than 64 taps or is wider than 32";
  }
  if (g.kernel_h * g.kernel_w * g.in_c > kMostInputs || g.out_c > kMostOutputs) {
    return "the kernel has more than 2^27 inputs an output or 2^20 outputs";
  }
  if (g.batch * g.out_h * g.out_w > kMostRows ||
      a.tiles.capacity * a.tiles.tile_h * a.tiles.tile_w > kMostRows) {
    return "more than 2^31 output pixels";
  }
  if (g.batch * g.in_h * g.in_w > kMax) return "the input passes 2^31 pixels";
  const int64_t reach =
      std::max(g.out_h * g.stride_h + int64_t{g.kernel_h} * g.dilation_h + std::abs(g.pad_top),
               g.out_w * g.stride_w + int64_t{g.kernel_w} * g.dilation_w + std::abs(g.pad_left));
  const int64_t inputs = std::max(g.in_h * g.lhs_dilation_h + std::abs(g.pad_top),
                                  g.in_w * g.lhs_dilation_w + std::abs(g.pad_left));
  if (reach > kMax || inputs > kMax) {
    return "an image side passes 2^31 pixels";
  }
  return nullptr;
}

const char* ConvProblemReason(const MaskedConvArgs& a) {
  if (!OnHopper()) return "the device is not of compute capability 9.0";
  if (const char* reason = ConvOperandReason(a)) return reason;
  if (const char* reason = ConvSizeReason(a)) return reason;
  return ChannelReason(a);
}

int64_t ConvKSteps(const ConvGeometry& g, DType type) {
  const int64_t taps = int64_t{g.kernel_h} * g.kernel_w, units = g.in_c * Bytes(type) / kUnitBytes;
  const int64_t together = CeilDivide(taps * g.in_c * Bytes(type), kStepUnits * kUnitBytes);
  return TapsFirst(taps, units) ? taps * CeilDivide(units, kStepUnits) : together;
}

int64_t ConvWeightBytes(const ConvGeometry& g, DType type) {
  if (type != DType::kF32) return 0;
  return (4 * g.kernel_h * g.kernel_w * g.in_c * g.out_c + 255) / 256 * 256;
}

RowList MakeRowList(const ConvGeometry& g, const TileList& list) {
  return {list.ids,
          list.count,
          static_cast<int>(list.capacity),
          list.tile_h,
          list.tile_w,
          list.grid_aligned,
          MakeDivisor(int64_t{list.tile_h} * list.tile_w),
          MakeDivisor(list.tile_w),
          MakeDivisor(CeilDivide(g.out_h, std::max(list.tile_h, 1))),
          MakeDivisor(CeilDivide(g.out_w, std::max(list.tile_w, 1)))};
}

ConvParams MakeConvParams(const MaskedConvArgs& a) {
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
  p.pixel_units = static_cast<int>(g.in_c * Bytes(a.in_type) / kUnitBytes);
  p.k_steps = static_cast<int>(ConvKSteps(g, a.in_type));
  p.taps_first = TapsFirst(g.kernel_h * g.kernel_w, p.pixel_units);
  p.out_f32 = a.out_type == DType::kF32;
  p.plain = g.dilation_h == 1 && g.dilation_w == 1 && g.lhs_dilation_h == 1 &&
            g.lhs_dilation_w == 1 && a.x_words == nullptr;
  p.by_kernel_w = MakeDivisor(g.kernel_w);
  p.by_lhs_h = MakeDivisor(g.lhs_dilation_h);
  p.by_lhs_w = MakeDivisor(g.lhs_dilation_w);
  p.by_out_h = MakeDivisor(g.out_h);
  p.by_out_w = MakeDivisor(g.out_w);
  p.by_blocks_h = MakeDivisor(CeilDivide(g.out_h, kBlockSide));
  p.by_blocks_w = MakeDivisor(CeilDivide(g.out_w, kBlockSide));
  for (int ky = 0; ky < g.kernel_h; ++ky) p.lines |= uint64_t{1} << ky * g.kernel_w;
  p.list = MakeRowList(g, a.tiles);
  p.words = a.tiles.words;
  p.x_words = a.x_words;
  p.x = a.x;
  p.bias = a.bias;
  p.residual = a.residual;
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

bool ListHoldsEveryTile(const ConvGeometry& g, const TileList& list) {
  const int64_t rows = CeilDivide(g.out_h, list.tile_h);
  const int64_t columns = CeilDivide(g.out_w, list.tile_w);
  return list.grid_aligned && list.capacity >= g.batch * rows * columns;
}

cudaError_t MapConvWeights(const MaskedConvArgs& a, cudaStream_t stream, CUtensorMap* map) {
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

cudaError_t MapConvImage(const MaskedConvArgs& a, const ConvParams& p, BoxPlan* plan,
                         CUtensorMap* map) {
  const ConvGeometry& g = a.geometry;
  const auto type = a.in_type == DType::kF32    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                    : a.in_type == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  *plan = MakeBoxPlan(p);
  return EncodeImageMap(map, type, Bytes(a.in_type), a.x, {g.batch, g.in_h, g.in_w, g.in_c},
                        {plan->height, plan->width, g.stride_h, g.stride_w, plan->row_bytes});
}

}  // namespace jaxsparse
