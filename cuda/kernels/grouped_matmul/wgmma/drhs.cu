// The launchers of the weights' gradient on Hopper.
#include <algorithm>

#include "cuda/core/device.h"
#include "cuda/core/launch.h"
#include "cuda/core/tensor_map.h"
#include "cuda/kernels/grouped_matmul/limits.h"
#include "cuda/kernels/grouped_matmul/wgmma/drhs.cuh"
#include "cuda/kernels/grouped_matmul/wgmma/launch.h"
#include "cuda/kernels/grouped_matmul/workspace.h"

namespace jaxsparse {
namespace {

template <typename T, bool Scaled>
cudaError_t Prepare() {
  using C = GroupedDrhsConfig<T, Scaled>;
  return cudaFuncSetAttribute(GroupedDrhsWgmmaKernel<C>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize, C::kSharedBytes);
}

template <typename T, bool Scaled>
cudaError_t Launch(const GroupedDrhsParams& p, const CUtensorMap (&maps)[3], int ctas,
                   cudaStream_t stream) {
  using C = GroupedDrhsConfig<T, Scaled>;
  GroupedDrhsWgmmaKernel<C>
      <<<ctas, C::kThreads, C::kSharedBytes, stream>>>(p, maps[0], maps[1], maps[2]);
  return cudaGetLastError();
}

template <typename T>
cudaError_t LaunchAs(const GroupedDrhsParams& p, const CUtensorMap (&maps)[3], int ctas,
                     cudaStream_t stream) {
  return p.row_weights == nullptr ? Launch<T, false>(p, maps, ctas, stream)
                                  : Launch<T, true>(p, maps, ctas, stream);
}

}  // namespace

const char* GroupedDrhsWgmmaReason(const GroupedDrhsArgs& a) {
  if (!OnHopper()) return "the device is not of compute capability 9.0";
  if (a.in_type == DType::kF32) return "float32: the tensor cores read TF32 with K contiguous only";
  if (!IsAligned16(a.lhs) || !IsAligned16(a.gy) || !IsAligned16(a.drhs)) {
    return "an operand is not aligned to 16 bytes";
  }
  if (a.shape.out_rows < 1) return "nothing to sum";
  return GroupedShapeReason(a.shape, a.in_type);
}

cudaError_t PrepareGroupedDrhsWgmma() {
  for (const cudaError_t status : {Prepare<__nv_bfloat16, false>(), Prepare<__nv_bfloat16, true>(),
                                   Prepare<__half, false>(), Prepare<__half, true>()}) {
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

cudaError_t LaunchGroupedDrhsWgmma(const GroupedDrhsArgs& a, cudaStream_t stream) {
  if (GroupedDrhsWgmmaReason(a) != nullptr) return cudaErrorInvalidValue;
  const GroupedShape& s = a.shape;
  const GroupedWorkspace w =
      GroupedWorkspace::Of(s, kDepthRows, false, a.out_type, false, a.scratch);
  if (a.scratch_bytes < w.bytes) return cudaErrorInvalidValue;
  cudaError_t status = cudaSuccess;
  GroupedDrhsParams p = {};
  if (s.groups > kMostDrhsSummed) {
    PlanRequest request = {};
    request.sizes = a.index.sizes;
    request.groups = s.groups;
    request.sorted_rows = s.sorted_rows;
    request.tile_m = kDepthRows;
    status = LaunchGroupedPlan(request, w.plan, stream);
    p.starts = w.plan.starts;
  }
  p.lhs =
      ReadsOf(a.lhs, s.lhs_rows, s.depth, a.in_type, a.index.gather, a.index.scatter, s.out_rows);
  p.gy =
      ReadsOf(a.gy, s.out_rows, s.outputs, a.in_type, a.index.scatter, a.index.gather, s.lhs_rows);
  p.sizes = a.index.sizes;
  p.sorted_rows = static_cast<int>(s.sorted_rows);
  p.row_weights = a.index.row_weights;
  p.drhs = a.drhs;
  p.groups = static_cast<int>(s.groups);
  p.depth = static_cast<int>(s.depth);
  p.outputs = static_cast<int>(s.outputs);
  p.m_tiles = static_cast<int>(CeilDiv(s.depth, 128));
  p.n_tiles = static_cast<int>(CeilDiv(s.outputs, 256));
  p.out_f32 = a.out_type == DType::kF32;
  p.lhs_boxes = a.index.gather == nullptr;
  p.gy_boxes = a.index.scatter == nullptr;
  CUtensorMap maps[3] = {};
  const auto type = a.in_type == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                              : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  if (status == cudaSuccess && p.lhs_boxes) {
    status = EncodeMatrixMap(&maps[0], type, 2, a.lhs, s.lhs_rows, s.depth, kDepthRows, 64);
  }
  if (status == cudaSuccess && p.gy_boxes) {
    status = EncodeMatrixMap(&maps[1], type, 2, a.gy, s.out_rows, s.outputs, kDepthRows, 64);
  }
  if (status == cudaSuccess && !p.out_f32) {
    status = EncodeMatrixMap(&maps[2], type, 2, a.drhs, s.groups * s.depth, s.outputs, kStoreRows,
                             kStoreColumns);
  }
  if (status != cudaSuccess) return status;
  const int64_t tiles = s.groups * p.m_tiles * p.n_tiles;
  const int ctas = static_cast<int>(std::min<int64_t>(MultiProcessors(), tiles));
  return a.in_type == DType::kBF16 ? LaunchAs<__nv_bfloat16>(p, maps, ctas, stream)
                                   : LaunchAs<__half>(p, maps, ctas, stream);
}

}  // namespace jaxsparse
