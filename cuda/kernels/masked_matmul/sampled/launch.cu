// Host side of the sampled product: what it takes, its workspace, and its launches.
#include <algorithm>
#include <limits>

#include "cuda/core/device.h"
#include "cuda/core/launch.h"
#include "cuda/core/stack_map.h"
#include "cuda/kernels/masked_matmul/sampled/launch.h"
#include "cuda/kernels/masked_matmul/sampled/params.cuh"
#include "cuda/kernels/masked_matmul/strips.h"

namespace jaxsparse {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostUnits = int64_t{1} << 20;  // their bits fit in shared memory

// Whether a wanted block is made of whole boxes of 32 rows and 64 columns.
bool HasBoxes(const BlockBits& bits) {
  return bits.row_size % kUnitRows == 0 && bits.col_size % kPanelRows == 0;
}

struct Parts {
  int64_t counts, listed, united, bytes;  // offsets, and all of it
};

SampledParams MakeParams(const MaskedMatmulArgs& a) {
  const bool boxes = HasBoxes(a.out_bits);
  SampledParams p = {};
  p.lists = static_cast<int>(a.lists);
  p.rows = static_cast<int>(a.rows);
  p.depth = static_cast<int>(a.depth);
  p.columns = static_cast<int>(a.columns);
  p.fixed_rows = boxes ? p.columns : p.rows;
  p.picked_rows = boxes ? p.rows : p.columns;
  p.fixed_lists = static_cast<int>(boxes ? a.b_lists : a.a_lists);
  p.picked_lists = static_cast<int>(boxes ? a.a_lists : a.b_lists);
  p.slabs = static_cast<int>(CeilDiv(a.depth * ElementBytes(a.in_type), kSlabBytes));
  p.panels = static_cast<int>(CeilDiv(p.fixed_rows, kPanelRows));
  p.units = boxes ? static_cast<int>(CeilDiv(p.picked_rows, kUnitRows)) : p.picked_rows;
  p.unit_words = static_cast<int>(CeilDiv(p.units, 32));
  p.tiles = static_cast<int>(CeilDiv(p.units, boxes ? kPickedRows / kUnitRows : kPickedRows));
  p.out_f32 = a.out_type == DType::kF32;
  p.bits = a.out_bits;
  p.picked = boxes ? a.a : a.b;
  p.out = a.out;
  return p;
}

Parts PlanParts(const SampledParams& p) {
  Parts parts = {};
  const auto take = [&parts](int64_t entries) {
    const int64_t at = parts.bytes;
    parts.bytes += CeilDiv(4 * entries, 1024) * 1024;
    return at;
  };
  const int64_t panels = p.bits.lists * p.panels;
  parts.counts = take(panels);
  parts.listed = take(panels * p.units);
  parts.united = take(panels * p.unit_words);
  return parts;
}

cudaError_t EncodeMaps(const MaskedMatmulArgs& a, const SampledParams& p, CUtensorMap* fixed,
                       CUtensorMap* picked) {
  const bool boxes = HasBoxes(a.out_bits);
  const int bytes = ElementBytes(a.in_type);
  const auto kind = a.in_type == DType::kF32    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                    : a.in_type == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const cudaError_t status = EncodeStackMap(fixed, kind, bytes, boxes ? a.b : a.a, p.fixed_lists,
                                            p.fixed_rows, p.depth, kPanelRows, kSlabBytes / bytes);
  if (status != cudaSuccess || !boxes) return status;
  return EncodeStackMap(picked, kind, bytes, a.a, p.picked_lists, p.picked_rows, p.depth, kUnitRows,
                        kSlabBytes / bytes);
}

}  // namespace

const char* SampledMatmulReason(const MaskedMatmulArgs& a) {
  const int64_t bytes = ElementBytes(a.in_type), out_bytes = ElementBytes(a.out_type);
  if (a.out_bits.words == nullptr) return "no mask on the result";
  if (const char* reason = MaskedMatmulStripsReason(a)) return reason;
  if (a.depth * bytes % 16 != 0 || a.columns * out_bytes % 16 != 0) {
    return "a row of an operand or of the result is not a multiple of 16 bytes";
  }
  if (std::max(a.rows, a.columns) > kMostUnits) return "a side of the result passes 2^20";
  if (a.columns * a.depth * bytes / 16 > kMaxInt || a.lists * a.columns > kMaxInt) {
    return "more than 2^31 rows, or 2^31 pieces of 16 bytes of b";
  }
  return nullptr;
}

int64_t SampledMatmulScratchBytes(const MaskedMatmulArgs& args) {
  return PlanParts(MakeParams(args)).bytes;
}

cudaError_t LaunchSampledMatmul(const MaskedMatmulArgs& args, cudaStream_t stream) {
  SampledParams p = MakeParams(args);
  const Parts parts = PlanParts(p);
  if (SampledMatmulReason(args) != nullptr || args.scratch_bytes < parts.bytes) {
    return cudaErrorInvalidValue;
  }
  char* scratch = static_cast<char*>(args.scratch);
  p.counts = reinterpret_cast<int32_t*>(scratch + parts.counts);
  p.listed = reinterpret_cast<int32_t*>(scratch + parts.listed);
  p.united = reinterpret_cast<uint32_t*>(scratch + parts.united);
  const bool boxes = HasBoxes(args.out_bits);
  CUtensorMap fixed = {}, picked = {};
  cudaError_t status = EncodeMaps(args, p, &fixed, &picked);
  if (status == cudaSuccess) status = LaunchSampledIndex(p, boxes, stream);
  if (status != cudaSuccess) return status;
  return LaunchSampledProduct(p, boxes, args.in_type, fixed, picked, stream);
}

cudaError_t PrepareSampledMatmul() {
  int capability = 0;
  cudaError_t status = ComputeCapability(&capability);
  if (status != cudaSuccess || capability / 10 != 9) return status;
  status = PrepareSampledIndex();
  return status == cudaSuccess ? PrepareSampledProduct() : status;
}

}  // namespace jaxsparse
