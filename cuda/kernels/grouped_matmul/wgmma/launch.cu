// The launcher table of the grouped products on Hopper: what it takes, what it needs, and one call.
#include "cuda/kernels/grouped_matmul/wgmma/launch.h"

#include <algorithm>
#include <iterator>

#include "cuda/core/device.h"
#include "cuda/core/dtype.cuh"
#include "cuda/core/launch.h"
#include "cuda/core/stack_map.h"
#include "cuda/kernels/grouped_matmul/combine.h"
#include "cuda/kernels/grouped_matmul/limits.h"
#include "cuda/kernels/grouped_matmul/params.cuh"
#include "cuda/kernels/grouped_matmul/wgmma/variant.h"
#include "cuda/kernels/grouped_matmul/wgmma/weights.h"
#include "cuda/tile/store/box.cuh"

namespace jaxsparse {
namespace {

constexpr int kTypes = 3, kTileM = 128;

struct Row {
  int number, tile_n;
  cudaError_t (*prepare[kTypes])();
  cudaError_t (*launch[kTypes])(const GroupedParams&, const GroupedMaps&, bool, int, cudaStream_t);
};

#define JAXSPARSE_MEMBERS(F, ...)                        \
  {&GroupedMatmulVariant<TF32, __VA_ARGS__>::F,          \
   &GroupedMatmulVariant<__nv_bfloat16, __VA_ARGS__>::F, \
   &GroupedMatmulVariant<__half, __VA_ARGS__>::F}
#define JAXSPARSE_VARIANT(number, name, tile_n, stages)        \
  {number, tile_n, JAXSPARSE_MEMBERS(Prepare, tile_n, stages), \
   JAXSPARSE_MEMBERS(Launch, tile_n, stages)},
constexpr Row kRows[] = {
#include "grouped_matmul_table.inc"
};
#undef JAXSPARSE_VARIANT
#undef JAXSPARSE_MEMBERS
constexpr int kRowCount = static_cast<int>(std::size(kRows));

constexpr bool NumbersCountUp() {
  for (int r = 0; r < kRowCount; ++r) {
    if (kRows[r].number != static_cast<int>(kFirstGroupedRow) + r) return false;
  }
  return true;
}
static_assert(NumbersCountUp(), "tensor-core rows must count up from 16 in the order of the table");

bool TransposesWeights(const GroupedMatmulArgs& a) {
  return a.in_type == DType::kF32 && !a.transpose_rhs;
}

// Whether a kernel sums up the sizes before the product.
bool NeedsPlan(const GroupedMatmulArgs& a) {
  return TransposesWeights(a) || a.shape.groups > kMostSummedGroups;
}

GroupedWorkspace WorkspaceOf(const GroupedMatmulArgs& a) {
  return GroupedWorkspace::Of(a.shape, kTileM, a.scatters, a.out_type, TransposesWeights(a),
                              a.scratch);
}

CUtensorMapDataType MapType(DType type) {
  return type == DType::kF32    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
         : type == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
}

GroupedParams MakeParams(const GroupedMatmulArgs& a, const Row& row, const GroupedWorkspace& w) {
  const GroupedShape& s = a.shape;
  GroupedParams p = {};
  p.lhs = ReadsOf(a.lhs, s.lhs_rows, s.depth, a.in_type, a.index.gather,
                  a.scatters ? a.index.scatter : nullptr, s.out_rows);
  if (NeedsPlan(a)) p.plan = w.plan;
  p.sizes = a.index.sizes;
  p.groups = static_cast<int>(s.groups);
  p.sorted_rows = static_cast<int>(s.sorted_rows);
  p.combine = w.combine;
  p.combine.scatter = a.scatters ? a.index.scatter : nullptr;
  p.row_weights = a.index.row_weights;
  p.out = a.scatters ? w.rows : a.out;
  p.outputs = static_cast<int>(s.outputs);
  p.n_tiles = static_cast<int>(CeilDiv(s.outputs, row.tile_n));
  p.k_steps = static_cast<int>(CeilDiv(p.lhs.units, kRowStepUnits));
  p.out_f32 = a.out_type == DType::kF32;
  p.contiguous = a.index.gather == nullptr;
  p.read_once = s.sorted_rows <= s.groups * kTileM;
  return p;
}

// Weights that lie [N, K] come in one box of tile_n rows, others in boxes of 64 x 64.
cudaError_t MapWeights(const GroupedMatmulArgs& a, const Row& row, const void* weights,
                       bool k_major, CUtensorMap* map) {
  const GroupedShape& s = a.shape;
  const int bytes = ElementBytes(a.in_type);
  if (!k_major) {
    return EncodeStackMap(map, MapType(a.in_type), bytes, weights, s.groups, s.depth, s.outputs, 64,
                          64);
  }
  return EncodeStackMap(map, MapType(a.in_type), bytes, weights, s.groups, s.outputs, s.depth,
                        row.tile_n, kRowStepBytes / bytes);
}

cudaError_t MapRows(const GroupedMatmulArgs& a, CUtensorMap* map) {
  const int bytes = ElementBytes(a.in_type);
  return EncodeMatrixMap(map, MapType(a.in_type), bytes, a.lhs, a.shape.lhs_rows, a.shape.depth,
                         kTileM, kRowStepBytes / bytes);
}

// The sorted rows' products as 16-row boxes of 64 columns.
cudaError_t MapProducts(const GroupedMatmulArgs& a, void* products, CUtensorMap* map) {
  return EncodeMatrixMap(map, MapType(a.out_type), ElementBytes(a.out_type), products,
                         a.shape.sorted_rows, a.shape.outputs, kStoreRows, kStoreColumns);
}

cudaError_t LaunchPlan(const GroupedMatmulArgs& a, const GroupedWorkspace& w, cudaStream_t stream) {
  PlanRequest request = {};
  request.sizes = a.index.sizes;
  request.groups = a.shape.groups;
  request.sorted_rows = a.shape.sorted_rows;
  request.tile_m = kTileM;
  request.unowned = !a.scatters;
  request.counts = w.combine.counts;
  request.count_words = a.shape.out_rows;
  return LaunchGroupedPlan(request, w.plan, stream);
}

}  // namespace

const char* GroupedWgmmaReason(const GroupedMatmulArgs& a, int variant_row) {
  if (variant_row < 0 || variant_row >= kRowCount) return "no such row in the variant table";
  if (!OnHopper()) return "the device is not of compute capability 9.0";
  if (a.highest && a.in_type == DType::kF32) return "float32 products are asked for, not TF32";
  if (!IsAligned16(a.lhs) || !IsAligned16(a.rhs) || !IsAligned16(a.out)) {
    return "an operand is not aligned to 16 bytes";
  }
  return GroupedShapeReason(a.shape, a.in_type);
}

int64_t GroupedWgmmaScratchBytes(const GroupedMatmulArgs& a) { return WorkspaceOf(a).bytes; }

cudaError_t PrepareGroupedWgmma() {
  for (const Row& row : kRows) {
    for (const auto prepare : row.prepare) {
      const cudaError_t status = prepare();
      if (status != cudaSuccess) return status;
    }
  }
  return cudaSuccess;
}

cudaError_t LaunchGroupedWgmma(const GroupedMatmulArgs& a, int variant_row, cudaStream_t stream) {
  if (GroupedWgmmaReason(a, variant_row) != nullptr) return cudaErrorInvalidValue;
  const GroupedWorkspace w = WorkspaceOf(a);
  if (a.scratch_bytes < w.bytes) return cudaErrorInvalidValue;
  const Row& row = kRows[variant_row];
  const GroupedShape& s = a.shape;
  cudaError_t status = cudaSuccess;
  if (NeedsPlan(a)) {
    status = LaunchPlan(a, w, stream);
  } else if (a.scatters) {
    status = LaunchClearCounts(w.combine.counts, s.out_rows, stream);
  }
  const void* weights = a.rhs;
  if (status == cudaSuccess && TransposesWeights(a)) {
    weights = w.weights;
    status = LaunchTransposeStack(static_cast<const float*>(a.rhs), w.weights, w.plan.starts,
                                  s.groups, s.depth, s.outputs, stream);
  }
  const GroupedParams p = MakeParams(a, row, w);
  const bool k_major = a.transpose_rhs || a.in_type == DType::kF32;
  GroupedMaps maps = {};
  if (status == cudaSuccess) status = MapWeights(a, row, weights, k_major, &maps.rhs);
  if (status == cudaSuccess && p.contiguous) status = MapRows(a, &maps.lhs);
  if (status == cudaSuccess && !p.out_f32) status = MapProducts(a, p.out, &maps.out);
  if (status != cudaSuccess) return status;
  const int64_t tiles = MaxRowTiles(s.sorted_rows, s.groups, kTileM) * p.n_tiles;
  const int ctas = static_cast<int>(std::min<int64_t>(MultiProcessors(), tiles));
  status = row.launch[static_cast<int>(a.in_type)](p, maps, k_major, ctas, stream);
  if (status != cudaSuccess || !a.scatters) return status;
  return LaunchCombine(
      {p.combine, p.lhs, a.index.sizes, static_cast<int>(s.groups), static_cast<int>(s.sorted_rows),
       w.rows, a.out, a.out_type, s.out_rows, s.outputs},
      stream);
}

}  // namespace jaxsparse
