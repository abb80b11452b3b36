// The launchers of the grouped products on CUDA cores.
#include "cuda/kernels/grouped_matmul/direct.h"

#include <algorithm>

#include "cuda/core/launch.h"
#include "cuda/kernels/grouped_matmul/combine.h"
#include "cuda/kernels/grouped_matmul/direct.cuh"

namespace jaxsparse {
namespace {

SortedRows Reads(const void* data, int64_t rows, const int32_t* index, const int32_t* partner,
                 int64_t partner_rows) {
  return {data, index, partner, static_cast<int>(rows), static_cast<int>(partner_rows), 0};
}

unsigned Grid(int64_t tiles) {
  return static_cast<unsigned>(std::max<int64_t>(1, std::min<int64_t>(tiles, 1 << 16)));
}

cudaError_t LaunchPlan(const GroupedIndex& index, const GroupedShape& s, const GroupedWorkspace& w,
                       bool unowned, cudaStream_t stream) {
  PlanRequest request = {};
  request.sizes = index.sizes;
  request.groups = s.groups;
  request.sorted_rows = s.sorted_rows;
  request.tile_m = direct::kTile;
  request.unowned = unowned;
  request.counts = w.combine.counts;
  request.count_words = s.out_rows;
  return LaunchGroupedPlan(request, w.plan, stream);
}

// F<T, U> for the types of one call.
template <template <typename, typename> class F, class... Args>
cudaError_t ByTypes(DType in, DType out, Args... args) {
  if (in == DType::kF32) return F<float, float>::Launch(args...);
  if (in == DType::kBF16) {
    return out == DType::kF32 ? F<__nv_bfloat16, float>::Launch(args...)
                              : F<__nv_bfloat16, __nv_bfloat16>::Launch(args...);
  }
  return out == DType::kF32 ? F<__half, float>::Launch(args...)
                            : F<__half, __half>::Launch(args...);
}

template <typename T, typename U>
struct Forward {
  static cudaError_t Launch(const direct::ForwardParams& p, unsigned grid, cudaStream_t stream) {
    direct::GroupedDirectKernel<T, U><<<grid, direct::kThreads, 0, stream>>>(p);
    return cudaGetLastError();
  }
};

template <typename T, typename U>
struct Drhs {
  static cudaError_t Launch(const direct::DrhsParams& p, unsigned grid, cudaStream_t stream) {
    direct::GroupedDrhsDirectKernel<T, U><<<grid, direct::kThreads, 0, stream>>>(p);
    return cudaGetLastError();
  }
};

GroupedWorkspace WorkspaceOf(const GroupedMatmulArgs& a) {
  return GroupedWorkspace::Of(a.shape, direct::kTile, a.scatters, a.out_type, false, a.scratch);
}

GroupedWorkspace WorkspaceOf(const GroupedDrhsArgs& a) {
  return GroupedWorkspace::Of(a.shape, direct::kTile, false, a.out_type, false, a.scratch);
}

}  // namespace

int64_t GroupedDirectScratchBytes(const GroupedMatmulArgs& a) { return WorkspaceOf(a).bytes; }
int64_t GroupedDrhsScratchBytes(const GroupedDrhsArgs& a) { return WorkspaceOf(a).bytes; }

cudaError_t LaunchGroupedDirect(const GroupedMatmulArgs& a, cudaStream_t stream) {
  const GroupedWorkspace w = WorkspaceOf(a);
  if (a.scratch_bytes < w.bytes) return cudaErrorInvalidValue;
  const GroupedShape& s = a.shape;
  cudaError_t status = LaunchPlan(a.index, s, w, !a.scatters, stream);
  if (status != cudaSuccess) return status;
  direct::ForwardParams p = {};
  p.lhs =
      Reads(a.lhs, s.lhs_rows, a.index.gather, a.scatters ? a.index.scatter : nullptr, s.out_rows);
  p.plan = w.plan;
  p.combine = w.combine;
  p.combine.scatter = a.scatters ? a.index.scatter : nullptr;
  p.row_weights = a.index.row_weights;
  p.rhs = a.rhs;
  p.out = a.scatters ? w.rows : a.out;
  p.depth = s.depth;
  p.outputs = s.outputs;
  p.step_k = a.transpose_rhs ? 1 : s.outputs;
  p.step_n = a.transpose_rhs ? s.depth : 1;
  p.n_tiles = static_cast<int>(CeilDiv(s.outputs, direct::kTile));
  if (s.sorted_rows > 0 && s.outputs > 0) {
    const int64_t tiles = MaxRowTiles(s.sorted_rows, s.groups, direct::kTile) * p.n_tiles;
    status = ByTypes<Forward>(a.in_type, a.out_type, p, Grid(tiles), stream);
  }
  if (status != cudaSuccess || !a.scatters) return status;
  return LaunchCombine(
      {p.combine, p.lhs, a.index.sizes, static_cast<int>(s.groups), static_cast<int>(s.sorted_rows),
       w.rows, a.out, a.out_type, s.out_rows, s.outputs},
      stream);
}

cudaError_t LaunchGroupedDrhsDirect(const GroupedDrhsArgs& a, cudaStream_t stream) {
  const GroupedWorkspace w = WorkspaceOf(a);
  if (a.scratch_bytes < w.bytes) return cudaErrorInvalidValue;
  const GroupedShape& s = a.shape;
  const cudaError_t status = LaunchPlan(a.index, s, w, false, stream);
  if (status != cudaSuccess) return status;
  direct::DrhsParams p = {};
  p.lhs = Reads(a.lhs, s.lhs_rows, a.index.gather, a.index.scatter, s.out_rows);
  p.gy = Reads(a.gy, s.out_rows, a.index.scatter, a.index.gather, s.lhs_rows);
  p.starts = w.plan.starts;
  p.row_weights = a.index.row_weights;
  p.drhs = a.drhs;
  p.groups = s.groups;
  p.depth = s.depth;
  p.outputs = s.outputs;
  p.m_tiles = static_cast<int>(CeilDiv(s.depth, direct::kTile));
  p.n_tiles = static_cast<int>(CeilDiv(s.outputs, direct::kTile));
  const int64_t tiles = s.groups * p.m_tiles * p.n_tiles;
  return ByTypes<Drhs>(a.in_type, a.out_type, p, Grid(tiles), stream);
}

cudaError_t PrepareGroupedDirect() {
  for (const cudaError_t status :
       {PrepareKernel(&direct::GroupedDirectKernel<float, float>, 0),
        PrepareKernel(&direct::GroupedDirectKernel<__nv_bfloat16, float>, 0),
        PrepareKernel(&direct::GroupedDirectKernel<__nv_bfloat16, __nv_bfloat16>, 0),
        PrepareKernel(&direct::GroupedDirectKernel<__half, float>, 0),
        PrepareKernel(&direct::GroupedDirectKernel<__half, __half>, 0),
        PrepareKernel(&direct::GroupedDrhsDirectKernel<float, float>, 0),
        PrepareKernel(&direct::GroupedDrhsDirectKernel<__nv_bfloat16, float>, 0),
        PrepareKernel(&direct::GroupedDrhsDirectKernel<__nv_bfloat16, __nv_bfloat16>, 0),
        PrepareKernel(&direct::GroupedDrhsDirectKernel<__half, float>, 0),
        PrepareKernel(&direct::GroupedDrhsDirectKernel<__half, __half>, 0)}) {
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace jaxsparse
